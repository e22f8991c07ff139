// A loop whose turns depend on a parameter: refused.
parameters {
  real<lower=0> step;
}
model {
  real reached = 0;
  while (reached < 1) {
    reached += step;
  }
  step ~ exponential(1);
  target += -reached;
}
