"""Losses: how far predictions are from targets, as one number or one for each example."""
