"""Contraction kernels: the function of a planned one (``kernel``), and the packing of its operands."""
