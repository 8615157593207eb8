"""Other programs on the same weights. Each runs in a child process, with an interpreter of its own.

`worker.py` is what the child runs; it loads one adapter (`openvino_adapter.py`, ...) by its path. Nothing
here is imported by the package itself, and nothing here imports the package.
"""
