"""Evaluation: suites, statistics, benchmarks and the reference task family."""
