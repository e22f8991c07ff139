// Ordered categories, by a logit and by a probit.
data {
  int<lower=1> N;
  int<lower=2> K;
  array[N] int<lower=1, upper=K> y;
  array[N] int<lower=1, upper=K> z;
  matrix[N, 2] x;
}
parameters {
  vector[2] beta;
  ordered[K - 1] c;
  ordered[K - 1] d;
}
model {
  vector[N] eta = x * beta;
  beta ~ double_exponential(0, 1);
  c ~ normal(0, 3);
  d ~ logistic(0, 1);
  y ~ ordered_logistic(eta, c);
  for (n in 1 : N) {
    z[n] ~ ordered_probit(0.5 * eta[n], d);
  }
}
