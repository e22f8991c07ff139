"""Routines in LLVM IR: scans, sorts, factorisations; ``batch.py`` runs one on each piece of a batch."""
