"""Intervals and sizes in, offsets out: lifetimes, placement, the independent checker."""
