"""Tools that a chain calls while it is written."""
