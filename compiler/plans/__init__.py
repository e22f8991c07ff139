"""Plans: how a kernel is run on a target, as values without machine code."""
