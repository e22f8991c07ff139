// Measurements in houses of counties, with a predictor by county.
data {
  int<lower=1> N;
  int<lower=1> J;
  array[N] int<lower=1, upper=J> county;
  vector[J] u;
  vector[N] floor;
  vector[N] y;
}
parameters {
  vector[J] raw;
  real g0;
  real g1;
  real b;
  real<lower=0> between;
  real<lower=0> within;
}
transformed parameters {
  vector[J] a = g0 + g1 * u + between * raw;
}
model {
  vector[N] mean_y = a[county] + b * floor;
  raw ~ std_normal();
  g0 ~ normal(0, 3);
  g1 ~ normal(0, 3);
  b ~ normal(0, 1);
  between ~ normal(0, 1);
  within ~ lognormal(0, 0.5);
  y ~ normal(mean_y, within);
}
generated quantities {
  real explained = square(between) / (square(between) + square(within));
}
