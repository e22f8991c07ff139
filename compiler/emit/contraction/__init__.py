"""Contraction kernels: the orientation and the tiles (``blocking``), the plan, and the function (``kernel``)."""
