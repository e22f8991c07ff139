"""Steps in, steps out: a kernel and its memory as a value, and what is merged, split, ordered and repeated."""
