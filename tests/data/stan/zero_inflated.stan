// Counts with too many zeros.
data {
  int<lower=0> N;
  array[N] int<lower=0> y;
  array[N, 2] real x;
}
parameters {
  real<lower=0, upper=1> theta;
  vector[2] beta;
}
model {
  theta ~ beta(2, 2);
  beta ~ normal(0, 1);
  for (n in 1 : N) {
    real eta = dot_product(to_vector(x[n]), beta);
    if (y[n] == 0) {
      target += log_sum_exp(log(theta), log1m(theta) + poisson_log_lpmf(y[n] | eta));
    } else {
      target += log1m(theta) + poisson_log_lpmf(y[n] | eta);
    }
  }
}
