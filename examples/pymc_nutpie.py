"""A PyMC model compiled by staticgrad and sampled by nutpie: growth of plants, by bed and by hours of light.

    python examples/pymc_nutpie.py

It needs ``pip install '.[pymc]'`` in a checkout. The beds share a prior, so that those with few plants borrow from the
others.
The same program then serves the measurements of another year: data are fed, and nothing is compiled again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import nutpie
import pymc as pm

import staticgrad.pymc

BEDS, PLANTS, SLOPE, SPREAD = 12, 150, 0.8, 0.5


def season(seed: int) -> tuple[Any, Any, Any]:
    """The bed of each plant, its hours of light and its growth; some beds have many plants, some few."""
    rng = np.random.default_rng(seed)
    bed = np.minimum(rng.geometric(0.2, PLANTS) - 1, BEDS - 1)
    light = rng.uniform(-2, 2, PLANTS)
    level = 3 + SPREAD * np.random.default_rng(0).normal(size=BEDS)  # that of the soil: the same every year
    return bed, light, level[bed] + SLOPE * light + 0.4 * rng.normal(size=PLANTS)


def declare(bed: Any, light: Any, growth: Any) -> pm.Model:
    with pm.Model(coords={"bed": [f"bed {i + 1}" for i in range(BEDS)]}) as model:
        bed, light = pm.Data("bed_of", bed), pm.Data("light", light)
        mean, spread = pm.Normal("mean", 0, 5), pm.HalfNormal("spread", 1)
        offset = pm.Normal("offset", dims="bed")
        level = pm.Deterministic("level", mean + spread * offset, dims="bed")
        slope, noise = pm.Normal("slope", 0, 2), pm.HalfNormal("noise", 1)
        pm.Normal("growth", level[bed] + slope * light, noise, observed=pm.Data("measured", growth))
    return model


def sample(compiled: Any) -> Any:
    return nutpie.sample(compiled, draws=500, tune=500, chains=2, seed=1, progress_bar=False)


def main() -> None:
    compiled = staticgrad.pymc.compile(declare(*season(1)))
    x = np.zeros(compiled.n_dim)
    value, gradient = compiled.logp_and_gradient(x)
    step = 1e-6 * gradient / np.linalg.norm(gradient)
    (above, _), (below, _) = compiled.logp_and_gradient(x + step), compiled.logp_and_gradient(x - step)
    ratio = (above - below) / (2e-6 * np.linalg.norm(gradient))
    print(f"{compiled.n_dim} unconstrained numbers; the logp at 0 is {value:.2f}")
    print(f"differences along its gradient are {ratio:.6f} times as long")
    bed, light, growth = season(2)
    years = {"first": compiled, "second": compiled.with_data(bed_of=bed, light=light, measured=growth)}
    for name, model in years.items():
        posterior = sample(model).posterior
        slope, level = posterior["slope"], posterior["level"].sel(bed="bed 1")
        print(
            f"the {name} year: slope {float(slope.mean()):.2f} ± {float(slope.std()):.2f} (simulated with {SLOPE}),"
            f" level of bed 1 {float(level.mean()):.2f} ± {float(level.std()):.2f}"
        )
    print("the second year was sampled by the program of the first")


if __name__ == "__main__":
    main()
