"""Programs over many scenarios: by leaves, in blocks, on threads and on the workers of executors."""
