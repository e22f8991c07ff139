"""One element of an op, on vector registers: the backend of ``ScalarBuilder`` for machine code."""
