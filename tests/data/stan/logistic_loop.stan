// A logistic regression, case by case, of cases that differ.
data {
  int<lower=1> N;
  int<lower=1> G;
  array[N] int<lower=1, upper=G> group;
  vector[N] x;
  array[N] int<lower=0> trials;
  array[N] int<lower=0> hits;
}
parameters {
  vector[G] a;
  real b;
  real<lower=0> scale;
}
transformed parameters {
  vector[N] eta;
  for (n in 1 : N) {
    eta[n] = a[group[n]] + b * x[n];
  }
}
model {
  a ~ normal(0, scale);
  scale ~ exponential(1);
  b ~ normal(0, 1);
  for (n in 1 : N) {
    if (trials[n] == 1) {
      hits[n] ~ bernoulli(inv_logit(eta[n]));
    } else {
      hits[n] ~ binomial_logit(trials[n], eta[n]);
    }
  }
}
