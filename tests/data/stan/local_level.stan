// A level that drifts, with a seasonal part.
data {
  int<lower=4> n;
  vector[n] y;
}
parameters {
  vector[n] mu;
  vector[n] season;
  positive_ordered[3] sigma;
}
model {
  for (t in 4 : n) {
    season[t] ~ normal(-sum(season[t - 3 : t - 1]), sigma[1]);
  }
  for (t in 2 : n) {
    mu[t] ~ normal(mu[t - 1], sigma[2]);
  }
  y ~ normal(mu + season, sigma[3]);
  sigma ~ student_t(4, 0, 1);
}
