"""The plans of products."""
