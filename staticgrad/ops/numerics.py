"""The guard that ``check_numerics`` puts behind every op."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from staticgrad.errors import NumericsError
from staticgrad.optable import Array, Op, register
from staticgrad.types import TensorType


@dataclass(frozen=True, slots=True)
class NumericsAttributes:
    """What to say if a value is not finite."""

    message: str


def _infer(attrs: NumericsAttributes, x: TensorType) -> tuple[TensorType, ...]:
    return ()


def _reference(attrs: NumericsAttributes, x: Array) -> tuple[Array, ...]:
    if not np.isfinite(x).all():
        raise NumericsError(attrs.message)
    return ()


NUMERICS_CHECK = register(
    Op(
        "numerics_check",
        "End the run if a value holds a NaN or an infinity.",
        infer=_infer,
        reference=_reference,
        differentiable=False,
        effect=True,
        tags=frozenset({"primitive"}),
    )
)
