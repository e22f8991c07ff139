"""Neural functions and layers."""
