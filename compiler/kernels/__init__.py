"""Primitive graph in, Program out: which nodes share a kernel, and what each kernel does."""
