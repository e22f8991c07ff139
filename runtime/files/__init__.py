"""Checkpoints, graphs and tensors as files."""
