// Intercepts and slopes by group, which are correlated.
data {
  int<lower=1> N;
  int<lower=1> J;
  array[N] int<lower=1, upper=J> group;
  vector[N] x;
  vector[N] y;
}
parameters {
  array[J] vector[2] effects;
  vector[2] center;
  cholesky_factor_corr[2] L;
  vector<lower=0>[2] scale;
  real<lower=0> sigma;
}
model {
  L ~ lkj_corr_cholesky(2);
  scale ~ exponential(1);
  center ~ normal(0, 2);
  sigma ~ gamma(2, 1);
  effects ~ multi_normal_cholesky(center, diag_pre_multiply(scale, L));
  for (n in 1 : N) {
    y[n] ~ normal(effects[group[n], 1] + effects[group[n], 2] * x[n], sigma);
  }
}
generated quantities {
  corr_matrix[2] Omega = multiply_lower_tri_self_transpose(L);
}
