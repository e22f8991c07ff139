"""Operands for the cases of the op table, drawn from a seed."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from staticgrad.graph.optable import REAL, Case, Op, Range

Array = np.ndarray[Any, np.dtype[Any]]

EDGES = {
    "float32": (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.75, np.inf, -np.inf, np.nan, 1e-40, 3e38, -1e-30, 7.5),
    "float64": (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.75, np.inf, -np.inf, np.nan, 5e-324, 1e308, -1e-300, 7.5),
    "int8": (0, 1, -1, 2, -7, 127, -128, 8),
    "int16": (0, 1, -1, 2, -7, 2**15 - 1, -(2**15), 15, 16),
    "int32": (0, 1, -1, 2, -7, 2**31 - 1, -(2**31), 31, 32, 33),
    "int64": (0, 1, -1, 2, -7, 2**63 - 1, -(2**63), 63, 64, 65),
    "uint8": (0, 1, 2, 7, 8, 9, 127, 128, 255),
    "uint16": (0, 1, 2, 7, 15, 16, 2**15, 2**16 - 1),
    "uint32": (0, 1, 2, 7, 31, 32, 2**31, 2**32 - 1),
    "uint64": (0, 1, 2, 7, 63, 64, 2**63, 2**64 - 1),
    "bool": (False, True),
}


def rng_for(*names: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32("/".join(map(str, names)).encode()))


def draw(
    rng: np.random.Generator, shape: Sequence[int], dtype: np.dtype, where: Range = REAL, distinct: bool = False
) -> Array:
    """Values in a range, away from its kinks; ``distinct`` ones have no near ties."""
    size = math.prod(shape)
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if dtype.kind in "iu":
        low = max(math.ceil(where.low), 0 if dtype.kind == "u" else -(2**31))
        return np.asarray(rng.integers(low, max(int(where.high), low) + 1, shape)).astype(dtype)
    if distinct:
        values = rng.permutation(np.linspace(where.low, where.high, max(size, 2)))[:size]
    else:
        values = rng.uniform(where.low, where.high, size)
    for kink in where.kinks:
        near = np.abs(values - kink) < where.margin
        values = np.where(near, kink + np.where(values < kink, -where.margin, where.margin), values)
    return np.asarray(values.reshape(shape)).astype(dtype)


def operand_dtypes(case: Case, dtype: np.dtype) -> list[np.dtype]:
    fixed = case.dtypes or (None,) * len(case.shapes)
    return [dtype if d is None else d for d in fixed]


def operands(op: Op, case: Case, dtype: np.dtype, *salt: object) -> list[Array]:
    rng = rng_for(op.name, case.shapes, dtype, *salt)
    ranges = case.ranges or (REAL,) * len(case.shapes)
    drawn = [
        draw(rng, shape, d, where, case.distinct)
        for shape, d, where in zip(case.shapes, operand_dtypes(case, dtype), ranges, strict=True)
    ]
    if case.prepared is not None:
        drawn[0] = case.prepared(drawn[0]).astype(drawn[0].dtype)
    if case.distinct:  # no ties between operands either
        drawn = [
            x + d.type(0.013 * i) if d.kind == "f" else x
            for i, (x, d) in enumerate(zip(drawn, operand_dtypes(case, dtype), strict=True))
        ]
    return drawn


def relative_error(got: Array, want: Array, floor: float = 1e-30) -> float:
    """Largest difference over the largest magnitude (at least ``floor``); NaN must meet NaN, infinity the same one."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    assert got.dtype == want.dtype, f"dtype {got.dtype}, expected {want.dtype}"
    if not got.size:
        return 0.0
    if got.dtype.kind in "biu":
        return 0.0 if np.array_equal(got, want) else math.inf
    odd = ~np.isfinite(want)
    if not np.array_equal(got[odd], want[odd], equal_nan=True) or not np.isfinite(got[~odd]).all():
        return math.inf
    if odd.all():
        return 0.0
    a, b = got[~odd].astype(np.float64), want[~odd].astype(np.float64)
    return float(np.abs(a - b).max() / max(float(np.abs(b).max()), floor))
