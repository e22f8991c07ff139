// A logistic regression.
data {
  int<lower=1> N;
  int<lower=1> K;
  matrix[N, K] x;
  array[N] int<lower=0, upper=1> y;
}
parameters {
  real alpha;
  vector[K] beta;
}
model {
  alpha ~ normal(0, 2.5);
  beta ~ student_t(4, 0, 2.5);
  y ~ bernoulli_logit(alpha + x * beta);
}
