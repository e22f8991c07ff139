// A hidden Markov model of two states, summed over by the forward algorithm.
data {
  int<lower=1> T;
  int<lower=1> K;
  vector[T] y;
}
parameters {
  array[K] simplex[K] move;
  ordered[K] mu;
  real<lower=0> sigma;
}
model {
  array[T, K] real gamma;
  for (k in 1 : K) {
    move[k] ~ dirichlet(rep_vector(2, K));
    gamma[1, k] = normal_lpdf(y[1] | mu[k], sigma);
  }
  mu ~ normal(0, 3);
  sigma ~ normal(0, 1);
  for (t in 2 : T) {
    for (k in 1 : K) {
      array[K] real acc;
      for (j in 1 : K) {
        acc[j] = gamma[t - 1, j] + log(move[j, k]) + normal_lpdf(y[t] | mu[k], sigma);
      }
      gamma[t, k] = log_sum_exp(acc);
    }
  }
  target += log_sum_exp(gamma[T]);
}
