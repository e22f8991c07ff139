"""The plans of convolutions: ``choice`` gives a kernel its own."""
