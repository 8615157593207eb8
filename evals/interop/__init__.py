"""Other harnesses: runs exported to inspect_ai, strategies as its solver and as lm-eval's model."""
