"""Ten PyMC models of the kinds that people sample, with data drawn from a seed: for tests and for ``samplers.py``.

``MODELS`` has a function of each name, which makes the model; nothing is downloaded. Counts, groups and lengths are
those of small studies, so that a gradient takes microseconds.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

if "arviz" not in sys.modules:
    with warnings.catch_warnings():  # PyMC imports ArviZ, which warns of its next version
        warnings.simplefilter("ignore")
        import arviz

import arviz
import pymc as pm
import pytensor
import pytensor.tensor as pt

Rng = np.random.Generator
MODELS: dict[str, Callable[[], pm.Model]] = {}


def named(build: Callable[[Rng], pm.Model]) -> Callable[[], pm.Model]:
    """Put the model among ``MODELS``, with data of a seed of its own."""

    def make() -> pm.Model:
        return build(np.random.default_rng(sum(map(ord, build.__name__))))

    MODELS[build.__name__] = make
    return make


@named
def hierarchical(_: Rng) -> pm.Model:
    """Eight schools (Rubin 1981), effects away from their centre."""
    effects = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    errors = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        eta = pm.Normal("eta", dims="school")
        theta = pm.Deterministic("theta", mu + tau * eta, dims="school")
        pm.Normal("effect", theta, errors, observed=effects, dims="school")
    return model


@named
def radon(rng: Rng) -> pm.Model:
    """Logarithms of radon in houses of 85 counties, by floor and by the county's uranium: intercepts and slopes by
    county, the data in containers."""
    counties, houses = 85, 919
    uranium = rng.normal(size=counties)
    county, floor = np.sort(rng.integers(0, counties, houses)), (rng.uniform(size=houses) < 0.17).astype(np.float64)
    level = 1.4 + 0.7 * uranium + 0.15 * rng.normal(size=counties)
    log_radon = level[county] - 0.65 * floor + rng.normal(0, 0.75, houses)
    with pm.Model(coords={"county": np.arange(counties), "house": np.arange(houses)}) as model:
        county_of = pm.Data("county_of", county, dims="house")
        floor_of = pm.Data("floor_of", floor, dims="house")
        uranium_of = pm.Data("uranium", uranium, dims="county")
        gamma = pm.Normal("gamma", 0, 10, shape=2)
        beta, sigma = pm.Normal("beta", 0, 10), pm.HalfNormal("sigma", 2)
        sigma_a, sigma_b = pm.HalfNormal("sigma_a", 1), pm.HalfNormal("sigma_b", 1)
        raw_a, raw_b = pm.Normal("raw_a", dims="county"), pm.Normal("raw_b", dims="county")
        intercept = pm.Deterministic("intercept", gamma[0] + gamma[1] * uranium_of + sigma_a * raw_a, dims="county")
        slope = beta + sigma_b * raw_b
        mean = intercept[county_of] + slope[county_of] * floor_of
        pm.Normal("log_radon", mean, sigma, observed=pm.Data("measured", log_radon, dims="house"), dims="house")
    return model


@named
def gaussian_process(rng: Rng) -> pm.Model:
    """A curve through 60 points under a Gaussian process of Matérn's covariance, marginalised."""
    x = np.sort(rng.uniform(0, 10, 60))
    y = np.sin(x) + 0.3 * x + 0.2 * rng.normal(size=60)
    with pm.Model() as model:
        length, height = pm.Gamma("length", 2, 1), pm.HalfNormal("height", 2)
        process = pm.gp.Marginal(cov_func=height**2 * pm.gp.cov.Matern52(1, ls=length))
        process.marginal_likelihood("y", X=x[:, None], y=y, sigma=pm.HalfNormal("sigma", 1))
    return model


@named
def logistic(rng: Rng) -> pm.Model:
    """A logistic regression of 1000 outcomes on 20 columns."""
    columns = rng.normal(size=(1000, 20))
    outcome = rng.uniform(size=1000) < 1 / (1 + np.exp(-columns @ rng.normal(0, 0.7, 20)))
    with pm.Model(coords={"column": [f"c{i}" for i in range(20)]}) as model:
        x = pm.Data("x", columns)
        intercept, scale = pm.Normal("intercept", 0, 2), pm.HalfNormal("scale", 1)
        weights = pm.Normal("weights", 0, scale, dims="column")
        pm.Bernoulli("outcome", logit_p=intercept + x @ weights, observed=outcome.astype(np.int64))
    return model


@named
def mixture(rng: Rng) -> pm.Model:
    """500 points from a mixture of three normal distributions, ordered by their means."""
    points = rng.normal(np.array([-3.0, 0.5, 4.0])[rng.integers(0, 3, 500)], 0.8)
    with pm.Model(coords={"component": range(3)}) as model:
        weights = pm.Dirichlet("weights", np.full(3, 2.0), dims="component")
        ordered = pm.distributions.transforms.ordered
        means = pm.Normal("means", 0, 5, transform=ordered, initval=[-2.0, 0.0, 2.0], dims="component")
        pm.NormalMixture("points", weights, means, sigma=pm.HalfNormal("sigma", 2, dims="component"), observed=points)
    return model


@named
def correlated(rng: Rng) -> pm.Model:
    """The covariance of five columns of 200 rows, by the Cholesky factor of an LKJ prior."""
    mixing = rng.normal(size=(5, 5)) * 0.5 + np.eye(5)
    rows = rng.normal(size=(200, 5)) @ mixing.T
    with pm.Model() as model:
        factor, _, _ = pm.LKJCholeskyCov("factor", n=5, eta=2, sd_dist=pm.Exponential.dist(1.0))
        pm.MvNormal("rows", pm.Normal("mean", 0, 2, shape=5), chol=factor, observed=rows)
    return model


@named
def random_walk(rng: Rng) -> pm.Model:
    """The volatility of 300 returns, whose logarithm walks."""
    log_scale = np.cumsum(rng.normal(0, 0.1, 300)) - 4
    returns = np.exp(log_scale) * rng.standard_t(8, 300)
    with pm.Model(coords={"day": np.arange(300)}) as model:
        step = pm.Exponential("step", 10)
        start = pm.Normal.dist(-4, 1)
        volatility = pm.GaussianRandomWalk("volatility", sigma=step, init_dist=start, dims="day")
        nu = pm.Exponential("nu", 0.1)
        pm.StudentT("returns", nu=nu, lam=pt.exp(-2 * volatility), observed=returns, dims="day")
    return model


@named
def autoregressive(rng: Rng) -> pm.Model:
    """A series of 200 numbers, each by the two before it."""
    series = np.zeros(200)
    for i in range(2, 200):
        series[i] = 0.2 + 0.6 * series[i - 1] - 0.3 * series[i - 2] + 0.4 * rng.normal()
    with pm.Model() as model:
        rho, sigma = pm.Normal("rho", 0, 0.5, shape=3), pm.HalfNormal("sigma", 1)
        start = pm.Normal.dist(0, 1, shape=2)
        pm.AR("series", rho, sigma=sigma, constant=True, ar_order=2, init_dist=start, observed=series)
    return model


@named
def ordinal(rng: Rng) -> pm.Model:
    """400 answers on a scale of five, by three columns, with ordered thresholds."""
    columns = rng.normal(size=(400, 3))
    answers = np.digitize(columns @ np.array([0.8, -0.5, 0.2]) + rng.logistic(size=400), [-2.0, -0.5, 0.7, 2.0])
    with pm.Model(coords={"threshold": range(4)}) as model:
        weights = pm.Normal("weights", 0, 1, shape=3)
        cuts = pm.Normal(
            "cuts", 0, 2, transform=pm.distributions.transforms.ordered, initval=np.linspace(-1.5, 1.5, 4),
            dims="threshold",
        )  # fmt: skip
        pm.OrderedLogistic("answers", eta=columns @ weights, cutpoints=cuts, observed=answers, compute_p=False)
    return model


@named
def epidemic(rng: Rng) -> pm.Model:
    """Counts of cases over 60 days: a scan over the susceptible and the infectious of a population, with negative
    binomial noise."""
    days, people = 60, 10_000.0
    state, cases = (people - 20, 20.0), np.zeros(days, np.int64)
    for day in range(days):
        fresh, well = 0.4 * state[0] * state[1] / people, 0.2 * state[1]
        state = (state[0] - fresh, state[1] + fresh - well)
        cases[day] = rng.negative_binomial(20, 20 / (20 + fresh))

    def step(susceptible: Any, infectious: Any, beta: Any, gamma: Any) -> Any:
        fresh = beta * susceptible * infectious / people
        return susceptible - fresh, infectious + fresh - gamma * infectious, fresh

    with pm.Model(coords={"day": np.arange(days)}) as model:
        beta, gamma = pm.LogNormal("beta", np.log(0.4), 0.5), pm.LogNormal("gamma", np.log(0.2), 0.5)
        infectious = pm.LogNormal("infectious", np.log(20), 1)
        (_, _, fresh) = pytensor.scan(
            step, outputs_info=[people - infectious, infectious, None], non_sequences=[beta, gamma], n_steps=days,
            return_updates=False,
        )  # fmt: skip
        pm.Deterministic("fresh", fresh, dims="day")
        pm.NegativeBinomial("cases", mu=fresh, alpha=pm.Exponential("alpha", 0.1), observed=cases, dims="day")
    return model


def points(model: pm.Model, count: int) -> Any:
    """Unconstrained vectors around where chains begin, one a row."""
    start = model.initial_point(0)
    flat = np.concatenate([np.ravel(start[model.rvs_to_values[rv].name]) for rv in model.free_RVs])
    return flat + 0.3 * np.random.default_rng(0).normal(size=(count, flat.size))


def places(model: pm.Model, names: Sequence[str]) -> Any:
    """Where the numbers of the unconstrained vector of ``points`` are that another one has, whose variables come in the
    order of these names."""
    start, found, at = model.initial_point(0), dict[str, Any](), 0
    for rv in model.free_RVs:
        name = model.rvs_to_values[rv].name
        found[name] = np.arange(at, at := at + np.size(start[name]))
    return np.concatenate([found[name] for name in names if name in found])


def moments(trace: Any) -> dict[str, tuple[Any, Any]]:
    """Means and standard deviations of each number of a trace, by variable, with their Monte Carlo errors: that of a
    deviation is by the mean of the squares."""
    posterior, over = trace.posterior, ("chain", "draw")
    posterior = posterior.to_dataset() if hasattr(posterior, "to_dataset") else posterior  # a tree, since ArviZ 1
    mean, sd = posterior.mean(over), posterior.std(over)
    errors, squares = arviz.mcse(posterior, method="mean"), arviz.mcse((posterior - mean) ** 2, method="mean")
    found = {}
    for name in posterior.data_vars:
        spread = sd[name].values
        found[f"mean of {name}"] = mean[name].values, np.nan_to_num(errors[name].values)
        found[f"sd of {name}"] = spread, np.nan_to_num(squares[name].values) / np.maximum(2 * spread, 1e-300)
    return found
