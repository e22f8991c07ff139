"""Graph to graph: each pass a small value in one visible list."""
