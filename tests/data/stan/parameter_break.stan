// A loop that a parameter ends: refused.
parameters {
  vector<lower=0>[4] step;
}
model {
  real reached = 0;
  for (k in 1 : 4) {
    reached += step[k];
    if (reached > 1)
      break;
    target += -step[k];
  }
}
