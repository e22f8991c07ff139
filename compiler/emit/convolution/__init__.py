"""Convolution kernels: ``kernel`` lists what writes each plan."""
