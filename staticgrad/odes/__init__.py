"""Ordinary differential equations: Runge-Kutta methods with adaptive steps, as one loop of a program."""
