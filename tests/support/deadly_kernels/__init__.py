"""A kernel whose build ends the process that compiles it."""
