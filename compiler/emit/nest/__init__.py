"""Nest kernels: what a nest says (``facts``), how it is run (``plan``), and the function (``kernel``)."""
