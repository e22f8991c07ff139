"""The plans of routines on the pieces of a batch."""
