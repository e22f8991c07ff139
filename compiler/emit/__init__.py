"""Planned kernels and steps come in, LLVM IR goes out, as text: llvmlite is imported where code is generated."""
