"""Running sums down the rows of a matrix join the nests beside them, and compute what they did before."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.targets import HERE

import staticgrad as sg
from staticgrad.graph.optable import Array

ROWS, COLUMNS = 9, 12
Fetches = list[sg.Tensor]


def feeds(rows: int = ROWS, columns: int = COLUMNS, dtype: sg.DType = sg.float64) -> tuple[sg.Tensor, sg.Tensor]:
    return sg.placeholder((rows, columns), dtype, name="x"), sg.placeholder((rows,), dtype, name="a")


def kernels(fetches: Fetches, feeds_: Fetches) -> str:
    return sg.Session().compile(fetches, feeds_).text("kernels")


def arrays(feeds_: Fetches, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=x.shape) * 0.5).astype(x.dtype.name) for x in feeds_]


def recurrence(x: sg.Tensor, a: sg.Tensor, *, reverse: bool) -> Fetches:
    """A running sum between elements before and after it, sums over rows, and derivatives."""
    s = sg.cumulative_sum(a[:, None] * x / (1 + x * x), axis=0, reverse=reverse)
    y = x * (1 + s * s)
    return [y, y.sum(axis=1), *sg.gradients((y * y).sum(), [x, a])]


@pytest.mark.parametrize("reverse", [False, True])
def test_what_makes_a_running_sum_and_what_reads_it_are_one_kernel(reverse: bool) -> None:
    x, a = feeds()
    s = sg.cumulative_sum(a[:, None] * x, axis=0, reverse=reverse)
    (kernel,) = kernels([x * s], [x, a]).split("\n0: ")
    assert kernel.count("running sum") == 1
    assert "1: " not in kernel
    assert "row after row" in kernel


def test_a_running_sum_joins_sums_over_its_rows_and_needs_no_memory_between() -> None:
    x, a = feeds()
    exe = sg.Session().compile((x * sg.cumulative_sum(a[:, None] * x, axis=0)).sum(axis=1), [x, a])
    assert "routine" not in exe.text("kernels")
    assert exe.memory.arena_bytes < x.type.nbytes  # a row of scratch memory


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("shape", [(2, 4), (5, 7), (9, 12), (33, 70), (80, 32), (3, 2000)])
@pytest.mark.parametrize("dtype", [sg.float64, sg.float32])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_same_values_with_and_without(
    target: str, shape: tuple[int, int], dtype: sg.DType, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    given = list(feeds(*shape, dtype))
    fetches = recurrence(*given, reverse=reverse)
    together = sg.Session().compile(fetches, given)(*arrays(given))
    monkeypatch.setenv("STATICGRAD_DISABLE", "running")
    apart = sg.Session().compile(fetches, given)(*arrays(given))
    scale = 1e-13 if dtype is sg.float64 else 1e-5
    for found, wanted in zip(together, apart, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=scale, atol=scale * np.abs(wanted).max())


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize(
    ("kind", "scan"),
    [
        ("sum", sg.cumulative_sum),
        ("prod", sg.cumulative_prod),
        ("max", sg.cummax),
        ("min", sg.cummin),
    ],
)
def test_every_kind_agrees_with_the_interpreter(
    target: str, kind: str, scan: Callable[..., sg.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    x, a = feeds()
    y = x - scan(a[:, None] * x, axis=0)
    exe = sg.Session().compile(y, [x, a])
    assert f"running {kind}" in exe.text("kernels")
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    values = arrays([x, a])
    np.testing.assert_allclose(exe(*values), sg.Session().compile(y, [x, a])(*values), rtol=1e-12, atol=1e-12)


def test_special_values_pass_through_a_running_sum() -> None:
    x, a = feeds(4, 4)
    exe = sg.Session().compile(x * sg.cumulative_sum(a[:, None] * x, axis=0), [x, a])
    data = np.array(
        [[0.0, -0.0, np.inf, 1.0], [1.0, -0.0, -np.inf, np.nan], [2.0, -0.0, 1.0, 1.0], [3.0, 0.0, 1.0, 1.0]]
    )
    with np.errstate(invalid="ignore"):
        wanted = data * np.cumsum(data, axis=0)
    found = exe(data, np.ones(4))
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found[:, :2]), np.signbit(wanted[:, :2]))


def test_threads_give_the_same_bits() -> None:
    given = list(feeds(300, 512))
    fetches = recurrence(*given, reverse=True)
    first, second = (sg.Session(num_threads=n).compile(fetches, given)(*arrays(given)) for n in (1, 2))
    for one, two in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, two)


def test_what_reads_other_rows_of_a_running_sum_comes_after_it() -> None:
    x, a = feeds()
    s = sg.cumulative_sum(a[:, None] * x, axis=0)
    values = arrays([x, a])
    total = np.cumsum(values[1][:, None] * values[0], axis=0)
    np.testing.assert_allclose(sg.Session().compile(s * s[::-1], [x, a])(*values), total * total[::-1], rtol=1e-12)


def test_what_waits_for_the_sum_of_its_row_is_not_run_twice() -> None:
    x, a = feeds()
    y = a[:, None] * x
    shares = sg.cumulative_sum(y / y.sum(axis=1, keepdims=True), axis=0) * y
    values = arrays([x, a])
    z = values[1][:, None] * values[0]
    expected = np.cumsum(z / z.sum(axis=1, keepdims=True), axis=0) * z
    np.testing.assert_allclose(sg.Session().compile(shares, [x, a])(*values), expected, rtol=1e-12)


def test_elements_that_are_the_same_in_every_column_run_by_themselves() -> None:
    x, a = feeds()
    y = sg.cumulative_sum(sg.broadcast_to((a * a)[:, None], x.shape), axis=0) * x
    values = arrays([x, a])
    expected = np.cumsum(values[1] ** 2)[:, None] * values[0]
    np.testing.assert_allclose(sg.Session().compile(y, [x, a])(*values), expected, rtol=1e-12)


def test_elementary_functions_stay_apart_where_registers_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    x, a = feeds(64, 32)
    y = x * sg.exp(sg.cumulative_sum(a[:, None] * x, axis=0))
    for target, parts in (("avx512", 1), ("avx2", 2)):
        monkeypatch.setenv("STATICGRAD_TARGET", target)
        if target in HERE:
            assert len(sg.Session().compile(y, [x, a]).cost.kernels) == parts
