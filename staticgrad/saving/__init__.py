"""Graphs as files and as texts."""
