"""Contraction kernels: which way around and in which tiles (``blocking``), the plan, and the function (``kernel``)."""
