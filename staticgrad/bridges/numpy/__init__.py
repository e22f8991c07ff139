"""Functions written for NumPy, traced as they are: `array.py` has the map."""
