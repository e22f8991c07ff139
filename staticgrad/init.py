"""First values of variables: ``sg.Variable(sg.init.kaiming_uniform(), shape=(64, 32))``."""

from __future__ import annotations

from typing import NoReturn

from staticgrad.base.hints import missing_from_module
from staticgrad.nn.initializers import (
    calculate_gain,
    constant,
    fans,  # noqa: F401  not for ``*``
    is_initializer,  # noqa: F401
    kaiming_normal,
    kaiming_uniform,
    normal,
    ones,
    orthogonal,
    uniform,
    xavier_normal,
    xavier_uniform,
    zeros,
)
from staticgrad.ops.variables import Initializer

__all__ = [
    "Initializer", "calculate_gain", "constant", "kaiming_normal", "kaiming_uniform", "normal", "ones", "orthogonal",
    "uniform", "xavier_normal", "xavier_uniform", "zeros",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> NoReturn:
    raise missing_from_module(__name__, name)
