"""Graph in, program out: differentiation, passes, kernels, lifetimes, placement, code."""
