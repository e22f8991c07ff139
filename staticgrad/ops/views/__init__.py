"""Ops that move no element, or none but to another place: shapes, axes, slices, joins, pads."""
