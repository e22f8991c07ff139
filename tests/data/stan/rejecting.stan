// Draws that are rejected: by the program, and by a bound of what is transformed.
data {
  real most;
}
parameters {
  real x;
  real y;
}
transformed parameters {
  real<upper=most> bounded = x + y;
}
model {
  if (x > 1) {
    reject("x is ", x);
  }
  x ~ normal(0, 1);
  y ~ normal(bounded, 1);
}
