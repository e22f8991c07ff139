"""Convolution kernels: ``kernel`` chooses a plan, and each plan writes its function."""
