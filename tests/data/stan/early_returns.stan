functions {
  real bent(real x) {
    if (x < 0)
      return exp(x);
    else
      return 1 + x;
  }
  real hinge(real x, real c) {
    real away = x - c;
    if (away > 0) {
      if (away > 1)
        return 2 * away - 1;
      return square(away);
    }
    away = -away;
    return 0.1 * away;
  }
  real deep(real x, int k);
  real deep(real x, int k) {
    for (i in 1 : 4) {
      if (i > k)
        return bent(x) * i;
    }
    return deep(x, k - 2);
  }
  real steps(real x) {
    int k = 0;
    while (k < 5) {
      k += 1;
      if (k == 3)
        break;
    }
    if (x > 1)
      return k * x;
    return k;
  }
  void penalise_lp(real x) {
    if (x < 0.2)
      return;
    target += -square(x);
  }
}
data {
  int<lower=0> N;
  vector[N] x;
  vector[N] y;
}
parameters {
  real a;
  real b;
  real<lower=0> sigma;
}
transformed parameters {
  vector[N] mu;
  for (n in 1 : N)
    mu[n] = bent(a + x[n]) + hinge(b * x[n], a);
  real slack = hinge(a, 0.5 * b);
}
model {
  a ~ normal(0, 1);
  b ~ normal(0, 1);
  sigma ~ exponential(1);
  penalise_lp(a);
  penalise_lp(-b);
  for (n in 1 : N) {
    if (mu[n] > 3)
      continue;
    y[n] ~ normal(mu[n], sigma);
  }
  target += -slack + deep(b, 5) + steps(a);
}
