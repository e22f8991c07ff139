"""Errors, switches, types, sizes, files, which need nothing but Python and NumPy."""
