"""Placement: live intervals come in, offsets go out."""
