// Counts with more variance than a Poisson's, and successes with more than a binomial's.
data {
  int<lower=1> N;
  array[N] int<lower=0> y;
  array[N] int<lower=0> hits;
  array[N] int<lower=0> trials;
  vector[N] x;
}
parameters {
  real a;
  real b;
  real<lower=0> phi;
  real<lower=0, upper=1> p;
  real<lower=1> kappa;
}
model {
  phi ~ inv_gamma(2, 2);
  p ~ uniform(0, 1);
  kappa ~ pareto(1, 1.5);
  y ~ neg_binomial_2_log(a + b * x, phi);
  for (n in 1 : N) {
    hits[n] ~ beta_binomial(trials[n], p * kappa, (1 - p) * kappa);
  }
}
