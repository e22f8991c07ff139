// Accidents by year, with a rate that changes once.
data {
  real<lower=0> early_rate;
  int<lower=1> T;
  array[T] int<lower=0> D;
}
transformed data {
  real log_unif = -log(T);
}
parameters {
  real<lower=0> e;
  real<lower=0> l;
}
transformed parameters {
  vector[T] lp = rep_vector(log_unif, T);
  for (s in 1 : T) {
    for (t in 1 : T) {
      lp[s] = lp[s] + poisson_lpmf(D[t] | t < s ? e : l);
    }
  }
}
model {
  e ~ exponential(early_rate);
  l ~ exponential(1);
  target += log_sum_exp(lp);
}
