"""The op table's entries by family, and the public functions that declare them."""
