"""Optimizers: a gradient and a variable in, an op that updates the variable out. Formulas and defaults are PyTorch's.

``schedules`` makes learning rates that follow the step, ``EMA`` keeps averages of variables.
"""

from __future__ import annotations

from typing import NoReturn

from staticgrad.base.boundary import expose
from staticgrad.base.hints import missing_from_module
from staticgrad.optim import schedules
from staticgrad.optim.base import Optimizer, ParameterGroup
from staticgrad.optim.clipping import clip_by_global_norm, global_norm
from staticgrad.optim.ema import EMA
from staticgrad.optim.lbfgs import LBFGS
from staticgrad.optim.methods import SGD, Adagrad, Adam, AdamW, Lion, RMSprop

__all__ = [
    "EMA",
    "LBFGS",
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Lion",
    "Optimizer",
    "ParameterGroup",
    "RMSprop",
    "clip_by_global_norm",
    "global_norm",
    "schedules",
]

expose(globals())


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> NoReturn:
    raise missing_from_module(__name__, name)
