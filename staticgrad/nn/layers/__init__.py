"""Layers: modules with PyTorch's constructor arguments, names of parameters and first values."""
