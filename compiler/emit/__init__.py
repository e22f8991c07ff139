"""Program in, LLVM IR out. llvmlite is imported here and where code is loaded, nowhere else."""
