"""Region in, steps out: which nodes share a kernel, and what each kernel does."""
