"""Plans: what a search would cost on a machine, worked out without it."""
