// Counts with a latent Gaussian process, whose covariance a function of ours makes.
functions {
  matrix kernel(array[] real t, real amplitude, real width) {
    int n = size(t);
    matrix[n, n] k;
    for (i in 1 : n) {
      k[i, i] = square(amplitude) + 1e-8;
      for (j in i + 1 : n) {
        k[i, j] = square(amplitude) * exp(-abs(t[i] - t[j]) / width);
        k[j, i] = k[i, j];
      }
    }
    return k;
  }
}
data {
  int<lower=1> N;
  array[N] real t;
  array[N] int<lower=0> y;
}
parameters {
  real<lower=0> amplitude;
  real<lower=0.1> width;
  real level;
  vector[N] z;
}
transformed parameters {
  vector[N] f = level + cholesky_decompose(kernel(t, amplitude, width)) * z;
}
model {
  amplitude ~ normal(0, 1);
  width ~ gamma(2, 2);
  level ~ normal(1, 1);
  z ~ std_normal();
  y ~ poisson_log(f);
}
