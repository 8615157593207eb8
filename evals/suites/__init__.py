"""Suites: samples with typed gold answers, opened by name, and the grading of what was answered."""
