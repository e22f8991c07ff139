"""The array API standard's namespace over tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staticgrad as sg

STANDARD = """
abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype atan atan2 atanh bitwise_and
bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor bool broadcast_arrays broadcast_to can_cast
ceil clip concat conj copysign cos cosh count_nonzero cumulative_prod cumulative_sum diff divide e empty empty_like
equal exp expand_dims expm1 eye finfo flip float32 float64 floor floor_divide full full_like greater greater_equal hypot
iinfo imag inf int16 int32 int64 int8 isdtype isfinite isin isinf isnan less less_equal linspace log log10 log1p log2
logaddexp logical_and logical_not logical_or logical_xor matmul matrix_transpose max maximum mean meshgrid min minimum
moveaxis multiply nan negative newaxis not_equal ones ones_like permute_dims pi positive pow prod real reciprocal
remainder repeat reshape result_type roll round searchsorted sign signbit sin sinh sort sqrt square squeeze stack std
subtract sum take take_along_axis tan tanh tensordot tile tril triu trunc uint16 uint32 uint64 uint8 unstack var vecdot
where zeros zeros_like
"""


def test_the_namespace_has_the_standard_s_functions() -> None:
    assert set(STANDARD.split()) <= set(dir(sg.array_api))
    assert sg.array_api.linalg is sg.linalg
    assert sg.constant(1.0).__array_namespace__() is sg.array_api
    assert sg.constant(1.0).__array_namespace__(api_version="2023.12") is sg.array_api
    with pytest.raises(sg.GraphError, match=r"actual '2019\.12'"):
        sg.constant(1.0).__array_namespace__(api_version="2019.12")


def standardised(x: Any, weights: Any, xp: Any) -> Any:
    """A program of the standard: statistics, a batch of products, sorting, a choice and a linear system."""
    z = (x - xp.mean(x, axis=0, keepdims=True)) / xp.std(x, axis=0, correction=1.0, keepdims=True)
    gram = xp.matmul(xp.permute_dims(z, (1, 0)), z) + xp.eye(x.shape[1], dtype=x.dtype, device=None)
    solved = xp.linalg.solve(gram, weights)
    kept = xp.where(xp.greater(solved, 0), solved, xp.zeros_like(solved))
    ranks = xp.astype(xp.argsort(xp.argsort(x[:, 0])), xp.float64)
    total = xp.sum(xp.concat([kept, xp.flip(ranks)]) * xp.arange(9, dtype=xp.float64))
    return xp.stack([total, xp.linalg.vector_norm(z), xp.max(xp.abs(xp.cumulative_sum(z, axis=1)))])


def test_a_program_for_the_standard_declares_what_numpy_computes() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(6, 3)), rng.normal(size=3)
    with sg.Graph() as graph:
        xs = sg.placeholder((6, 3), sg.float64), sg.placeholder((3,), sg.float64)
        y = standardised(*xs, xs[0].__array_namespace__())
    found = sg.Session(graph).run(y, dict(zip(xs, (x, w), strict=True)))
    np.testing.assert_allclose(found, standardised(x, w, np), rtol=1e-12)


def test_array_api_compat_finds_the_namespace() -> None:
    compat = pytest.importorskip("array_api_compat")
    x = sg.constant([1.0])
    assert compat.array_namespace(x, x) is sg.array_api
    assert compat.device(x) == "cpu"
    assert compat.size(x) == 1


def test_the_namespace_tells_of_itself() -> None:
    info = sg.array_api.__array_namespace_info__()
    assert info.capabilities()["data-dependent shapes"] is False
    assert info.devices() == [info.default_device()] == ["cpu"]
    assert set(info.dtypes(kind="unsigned integer")) == {"uint8", "uint16", "uint32", "uint64"}
    assert info.default_dtypes()["real floating"] == sg.zeros(()).dtype
    assert sg.array_api.zeros((2,), device="cpu").shape == (2,)
    with pytest.raises(sg.GraphError, match="actual 'gpu'"):
        sg.array_api.zeros((2,), device="gpu")
