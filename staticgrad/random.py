"""Random numbers inside a graph: ``sg.random.uniform``, ``normal``, ``categorical``, ``choice``, ….

What is drawn follows from the session's seed, the number of the run and the place of the op among the graph's random
ops, so it does not depend on threads or on what else a program computes.
"""

from __future__ import annotations

from typing import NoReturn

from staticgrad.base.boundary import expose
from staticgrad.base.hints import missing_from_module
from staticgrad.ops.distributions import categorical, choice, exponential, gamma, randint
from staticgrad.ops.randoms import bernoulli, normal, permutation, uniform

__all__ = [
    "bernoulli",
    "categorical",
    "choice",
    "exponential",
    "gamma",
    "normal",
    "permutation",
    "randint",
    "uniform",
]

expose(globals())


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> NoReturn:
    raise missing_from_module(__name__, name)
