"""Nest kernels: the function of a planned nest (``kernel``), by loops, values and memory."""
