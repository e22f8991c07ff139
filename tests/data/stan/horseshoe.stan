// A regression with few coefficients that matter.
data {
  int<lower=1> N;
  int<lower=1> K;
  matrix[N, K] X;
  vector[N] y;
}
parameters {
  vector[K] z;
  vector<lower=0>[K] local;
  real<lower=0> overall;
  real<lower=0> sigma;
}
transformed parameters {
  vector[K] beta = z .* local * overall;
}
model {
  z ~ std_normal();
  local ~ student_t(1, 0, 1);
  overall ~ student_t(1, 0, 0.1);
  sigma ~ scaled_inv_chi_square(3, 1);
  y ~ normal(X * beta, sigma);
}
