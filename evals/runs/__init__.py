"""Runs: strategies times budgets times seeds over a suite, recorded sample by sample, resumable."""
