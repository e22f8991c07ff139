"""Tapes: the regions of a forward and of its backwards, and which values live between them."""
