"""The GPU check: what the kernels and the engine compute and how long they take, in one run on one GPU."""
