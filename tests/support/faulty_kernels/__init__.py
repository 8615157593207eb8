"""Kernels that the compile check must refuse, each for one reason."""
