"""Searches for a minimum, each one program that is called once: ``sg.minimize`` and ``sg.least_squares``."""
