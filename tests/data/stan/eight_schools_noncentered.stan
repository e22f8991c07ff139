// Effects of coaching in eight schools, of standardised effects.
data {
  int<lower=0> J;
  vector[J] y;
  vector<lower=0>[J] sigma;
}
parameters {
  real mu;
  real<lower=0> tau;
  vector[J] raw;
}
transformed parameters {
  vector[J] theta = mu + tau * raw;
}
model {
  target += normal_lpdf(mu | 0, 5) + cauchy_lpdf(tau | 0, 5);
  raw ~ std_normal();
  y ~ normal(theta, sigma);
}
