// Functions of the user's: recursive, a density, one that adds to the log density; loops that end early.
functions {
  real power(real x, int n) {
    if (n == 0) {
      return 1;
    }
    return x * power(x, n - 1);
  }
  real skewed_lpdf(vector y, real mu, real sigma) {
    real total = 0;
    for (n in 1 : num_elements(y)) {
      if (y[n] < 0.5) {
        total += normal_lpdf(y[n] | mu, sigma);
      } else {
        total += cauchy_lpdf(y[n] | mu, 2 * sigma);
      }
    }
    return total;
  }
  void prior_lp(real x) {
    target += normal_lpdf(x | 0, 2);
  }
  array[] int odd(array[] int values) {
    array[size(values)] int found;
    int count = 0;
    for (value in values) {
      if (value % 2 == 0) {
        continue;
      }
      count += 1;
      found[count] = value;
    }
    return found[ : count];
  }
}
data {
  int<lower=1> N;
  vector[N] y;
  array[N] int k;
}
transformed data {
  int steps = 0;
  array[size(odd(k))] int chosen = odd(k);
  while (power(1.5, steps) < 10) {
    steps += 1;
    if (steps > 50) {
      break;
    }
  }
}
parameters {
  real mu;
  real<lower=0> sigma;
  real w;
}
model {
  prior_lp(mu);
  prior_lp(w);
  sigma ~ exponential(1);
  y ~ skewed(mu, sigma);
  target += -0.1 * power(w, 4) + sum(y[chosen]) * w - steps * sigma;
}
