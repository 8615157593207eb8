"""Kernels with nothing wrong, one of them inside another."""
