"""Replay: recorded outputs as a back end, and what they say about other numbers of samples."""
