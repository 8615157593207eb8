"""A run as one page that opens anywhere, without a network: figures, tests, warnings, search trees."""
