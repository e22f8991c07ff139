"""LLVM text in, machine code out: code generation, linking, loading, the cache on disk."""
