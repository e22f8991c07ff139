"""Other frameworks' graphs and functions, converted, wrapped and run."""
