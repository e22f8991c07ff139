"""staticgrad: declare a graph once, get forward, backward and update as one native function."""

__version__ = "0.1.0"
