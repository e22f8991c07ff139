"""Regions: the part of a graph that one program computes. How one is cut, checked, named and rebuilt."""
