"""Functions of functions: derivatives, minimization, functions of matrices, a check of gradients."""
