"""Optional native operators for the CPU, built from the sources beside this file at first use."""
