"""Runs spread over many machines."""
