"""Linear algebra beyond products: what kernels factorise, what is solved with it, and the derivatives of both."""
