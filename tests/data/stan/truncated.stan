// Truncated and robust measurements.
data {
  int<lower=1> N;
  vector<lower=0>[N] y;
  vector[N] z;
}
parameters {
  real mu;
  real<lower=0> sigma;
  real<lower=1> nu;
}
model {
  mu ~ normal(1, 2) T[0, ];
  sigma ~ student_t(3, 0, 2) T[0, ];
  nu ~ gamma(2, 0.1) T[1, ];
  for (n in 1 : N) {
    y[n] ~ normal(mu, sigma) T[0, 9];
  }
  z ~ student_t(nu, mu, sigma);
}
