// Times of failure, some of them censored.
data {
  int<lower=0> N;
  vector<lower=0>[N] t;
  array[N] int<lower=0, upper=1> seen;
}
parameters {
  real<lower=0> shape;
  real log_scale;
}
model {
  shape ~ gamma(1, 1);
  log_scale ~ gumbel(0, 1);
  for (n in 1 : N) {
    if (seen[n]) {
      target += weibull_lpdf(t[n] | shape, exp(log_scale));
    } else {
      target += weibull_lccdf(t[n] | shape, exp(log_scale));
    }
  }
}
