"""Kernels as values: nests, products, routines, and the index maps and orders of axes through which they address."""
