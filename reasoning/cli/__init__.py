"""The command line: arguments in, one solution or one line of error out."""
