// One parameter of each other constraint.
data {
  real upper_bound;
}
parameters {
  real location;
  real<lower=0> scale;
  real<upper=upper_bound> below;
  vector<offset=location, multiplier=scale>[3] affine;
  matrix<lower=-1, upper=2>[2, 3] between;
  array[2, 3] real<lower=location> above;
  ordered[4] up;
  array[2] positive_ordered[3] positive_up;
  simplex[4] parts;
  array[2] sum_to_zero_vector[4] zero;
  sum_to_zero_matrix[3, 2] margins;
  cholesky_factor_cov[4, 2] tall;
}
model {
  scale ~ exponential(2);
  affine ~ normal(location, scale);
  location ~ normal(0, 1);
  below ~ normal(0, 1);
  for (i in 1 : 2) {
    above[i] ~ normal(location, 2);
    between[i] ~ normal(0, 1);
    positive_up[i] ~ exponential(1);
    zero[i] ~ normal(0, 1);
  }
  up ~ normal(0, 1);
  parts ~ dirichlet([1, 2, 3, 4]');
  to_vector(margins) ~ normal(0, 1);
  target += margins[2, 1] * margins[1, 1] * zero[1, 2] + tall[3, 2] * tall[1, 1] - sum(square(tall));
}
