"""Runners of programs, state, feeds and fetches."""
