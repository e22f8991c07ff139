"""Reading and writing at indices: ``x[...]``, ``take``, ``scatter``, and what labels need."""
