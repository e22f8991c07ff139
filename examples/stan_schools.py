"""A Stan program as it is, sampled by nutpie without a C++ compiler.

    python examples/stan_schools.py

The model is the classic one of eight schools, in Stan's language: the effects of coaching in each, shrunk towards their
mean (Rubin, Estimation in Parallel Randomized Experiments, 1981). ``staticgrad.stan.compile`` makes of the program and
its data a log density with its gradient, one native function that nutpie calls without Python.
"""

from __future__ import annotations

import time

import numpy as np
import nutpie
import stanli  # which reads the language

import staticgrad.stan

PROGRAM = """
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
  mu ~ normal(0, 5);
  tau ~ cauchy(0, 5);
  raw ~ std_normal();
  y ~ normal(theta, sigma);
}
"""
EFFECTS, ERRORS = [28, 8, -3, 7, -1, 1, 18, 12], [15, 10, 16, 11, 9, 11, 10, 18]


def main() -> None:
    begun = time.perf_counter()
    model = staticgrad.stan.compile(PROGRAM, {"J": len(EFFECTS), "y": EFFECTS, "sigma": ERRORS})
    x = model.initial_point(seed=1)
    model.logp_and_gradient(x)
    print(f"the first gradient after {time.perf_counter() - begun:.2f} s, read by stanli {stanli.__version__}")

    trace = nutpie.sample(model, draws=500, tune=500, chains=2, cores=1, seed=1, progress_bar=False)
    theta, tau = (np.asarray(trace.posterior[name]) for name in ("theta", "tau"))
    means = theta.mean(axis=(0, 1))
    print("effects of the schools:", " ".join(f"{mean:.1f}" for mean in means), f"with a spread of {tau.mean():.1f}")
    center = np.mean(EFFECTS)
    if not np.all(np.abs(means - center) < np.abs(np.array(EFFECTS) - center) + 4):
        raise AssertionError("the effects are not shrunk towards their mean")


if __name__ == "__main__":
    main()
