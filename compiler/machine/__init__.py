"""The machines that are compiled for: instruction sets, caches, costs, and which modes were chosen on them."""
