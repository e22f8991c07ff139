// Branches on what is sampled, and on data.
data {
  int<lower=1> N;
  vector[N] y;
  int robust;
}
parameters {
  real a;
  real b;
  vector[3] c;
}
transformed parameters {
  real slope = a > 0 ? a : 0.5 * a;
  vector[3] d = c;
  if (b < 0) {
    d[2] = b * b;
    d[3] += slope;
  } else if (b > 1) {
    d[1] = log(b);
  }
}
model {
  a ~ normal(0, 1);
  b ~ normal(0, 1);
  c ~ normal(d, 2);
  for (n in 1 : N) {
    if (y[n] > a) {
      target += -square(y[n] - slope);
    } else {
      target += normal_lpdf(y[n] | d[1], 1);
    }
  }
  if (robust) {
    y ~ cauchy(sum(d), 1);
  }
}
