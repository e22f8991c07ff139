"""The plans of nests."""
