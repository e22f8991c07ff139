"""The problems of the benchmark of sparse derivatives: one formula in every system, and the published values."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pytest
from source_tree import ROOT
from support.selection import rotating

import staticgrad as sg

sys.path.append(str(ROOT / "benchmarks"))
from sparse_problems import CASADI, PROBLEMS, Problem

# Problems whose formulas `sif2jax` has as well, objectives and perhaps constraints, by the argument that is its size.
# Left out are those that it could not verify or that have another sign or start there: of some chains its constraints
# overlap where the report's groups follow each other.
PUBLISHED = {
    "lukvle1": "n", "lukvle6": "n", "lukvle8": "n", "lukvle10": "n", "broydn7d": "n", "arwhead": "n", "bdqrtic": "n",
    "cosine": "n", "curly10": "n", "dixmaanb": "n", "dqdrtic": "n", "edensch": "n", "eg2": "n", "engval1": "_n",
    "genhumps": "n", "indef": "n", "liarwhd": "n", "noncvxun": "n", "nondquar": "n", "sparsine": "n", "srosenbr": "n",
    "tointgss": "_n", "woods": "n",
}  # fmt: skip
CONSTRAINED = ("lukvle1", "lukvle6", "lukvle8", "lukvle10")


def functions(problem: Problem) -> list[Any]:
    return [f for f in (problem.objective, problem.constraints) if f is not None]


def near_start(problem: Problem) -> np.ndarray:
    return problem.start + 1e-2 * np.random.default_rng(0).normal(size=problem.size)


def declared(problem: Problem) -> tuple[sg.Tensor, list[sg.Tensor]]:
    x = sg.placeholder((problem.size,), sg.float64, name="x")
    return x, [f(sg, x) for f in functions(problem)]


def test_there_are_sixty() -> None:
    assert len(PROBLEMS) == 60
    assert sum(make(40).constraints is not None for make in PROBLEMS.values()) >= 20


def test_sizes_are_near_to_those_asked_for() -> None:
    for name, make in PROBLEMS.items():
        for size in (60, 1000) if name != "polygon" else (60,):
            problem = make(size)
            assert abs(problem.size - size) <= 0.1 * size, name
            assert np.isfinite(problem.objective(np, problem.start)), name


@pytest.mark.parametrize("name", rotating(PROBLEMS))
def test_formulas_are_those_of_numpy(name: str) -> None:
    problem = PROBLEMS[name](36)
    x = near_start(problem)
    with sg.Graph() as graph:
        at, ys = declared(problem)
    found = sg.Session(graph).compile(ys, at)(x)
    for y, f in zip(found, functions(problem), strict=True):
        wanted = np.asarray(f(np, x))
        assert y.shape == wanted.shape
        np.testing.assert_allclose(y, wanted, rtol=1e-12, atol=1e-12 * max(1, np.abs(wanted).max()))


@pytest.mark.parametrize("name", PROBLEMS)
def test_formulas_and_derivatives_are_those_of_casadi(name: str) -> None:
    ca: Any = pytest.importorskip("casadi")
    problem = PROBLEMS[name](24)
    x = near_start(problem)
    with sg.Graph() as graph:
        at, ys = declared(problem)
        slopes = [sg.jacobian(y, at) for y in ys]
        bends = sg.hessian(ys[0] + sum(sg.sum(sg.sin(np.arange(float(y.size))) * y) for y in ys[1:]), at)
    found = sg.Session(graph).compile([*ys, *slopes, bends], at)(x)
    symbol = ca.SX.sym("x", problem.size)
    theirs = [f(CASADI, symbol) for f in functions(problem)]
    energy = theirs[0] + sum(ca.dot(ca.DM(np.sin(np.arange(float(y.shape[0])))), y) for y in theirs[1:])
    wanted = ca.Function(
        "f", [symbol], [*theirs, *(ca.jacobian(y, symbol) for y in theirs), ca.hessian(energy, symbol)[0]]
    )
    for number, (y, z) in enumerate(zip(found, wanted.call([x]), strict=True)):
        exact = np.array(z).reshape(y.shape)
        bound = (1e-12 if number < len(ys) else 1e-10) * max(1, np.abs(exact).max())
        np.testing.assert_allclose(y, exact, rtol=0, atol=bound)


@pytest.mark.parametrize("name", PUBLISHED)
def test_values_are_those_of_sif2jax(name: str) -> None:
    """By the definitions that sif2jax has taken from the files of CUTEst and compared with them."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sif2jax: Any = pytest.importorskip("sif2jax")
    jax: Any = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    problem = PROBLEMS[name](60)
    published = getattr(sif2jax.cutest, name.upper())(**{PUBLISHED[name]: problem.size})
    x = near_start(problem)
    at = jax.numpy.asarray(x)
    np.testing.assert_allclose(problem.objective(np, x), float(published.objective(at, published.args)), rtol=1e-13)
    if name in CONSTRAINED:
        wanted = next(np.asarray(c) for c in published.constraint(at) if c is not None)
        np.testing.assert_allclose(problem.constraints(np, x), wanted, rtol=1e-12, atol=1e-12)
