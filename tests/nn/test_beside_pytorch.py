"""Functions of images, volumes and rows beside PyTorch's: values and gradients in float64, in all their options."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import staticgrad as sg

torch = pytest.importorskip("torch")
nn = torch.nn.functional

SIZES: dict[int, tuple[int, ...]] = {1: (2, 3, 11), 2: (2, 3, 9, 10), 3: (2, 2, 7, 6, 8)}
Case = tuple[str, dict[str, Any], tuple[tuple[int, ...], ...]]


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")


def agree(
    function: Callable[..., Any], theirs: Callable[..., Any], arrays: list[np.ndarray], held: tuple[Any, ...] = ()
) -> None:
    """Values, all of them, and gradients of the first one agree to the last digits."""
    rng = np.random.default_rng(3)
    with sg.Graph():
        xs = [sg.placeholder(a.shape, sg.float64) for a in arrays]
        made = function(*xs, *held)
        made = made if isinstance(made, tuple) else (made,)
        cotangent = rng.normal(size=made[0].shape)
        slopes = sg.gradients(sg.sum(made[0] * cotangent), xs)
        values, slopes = sg.Session().run([list(made), slopes], dict(zip(xs, arrays, strict=True)))
    xs = [torch.tensor(a, requires_grad=True) for a in arrays]
    wanted = theirs(*xs, *(torch.tensor(h) if isinstance(h, np.ndarray) else h for h in held))
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    (wanted[0] * torch.tensor(cotangent)).sum().backward()
    for got, want in zip(values, wanted, strict=True):
        np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-12, atol=1e-12)
    for got, x in zip(slopes, xs, strict=True):
        got = np.zeros(x.shape) if got is None else got  # PyTorch has zeros where nothing depends
        np.testing.assert_allclose(got, x.grad.numpy(), rtol=1e-12, atol=1e-12)


def pools() -> Iterator[Case]:
    for axes in (1, 3):
        for kernel, stride, padding, dilation, ceil in (
            (2, None, 0, 1, False), (3, 2, 1, 1, False), (3, 2, 1, 2, True), (2, 3, 1, 1, True),
        ):  # fmt: skip
            steps: dict[str, Any] = {
                "kernel_size": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil,
            }  # fmt: skip
            yield f"max_pool{axes}d", {**steps, "dilation": dilation, "return_indices": True}, (SIZES[axes],)
            for counts in (True, False):
                yield f"avg_pool{axes}d", {**steps, "count_include_pad": counts}, (SIZES[axes],)
    yield "avg_pool3d", {"kernel_size": (2, 3, 1), "divisor_override": 5}, (SIZES[3],)
    for axes in (1, 2, 3):
        for size in (1, 2, 5, (2, None, 4)[:axes]):
            yield f"adaptive_max_pool{axes}d", {"output_size": size, "return_indices": True}, (SIZES[axes],)
            yield f"adaptive_avg_pool{axes}d", {"output_size": size}, (SIZES[axes],)


def transposed() -> Iterator[Case]:
    for axes in (1, 3):
        for stride, padding, extra, groups, dilation in (
            (1, 0, 0, 1, 1), (2, 1, 1, 1, 1), (3, 1, 2, 2, 1), (1, 0, 0, 1, 2), (2, 1, 2, 1, 3), (1, 1, 1, 2, 2),
            ((2, 1, 3)[:axes], (1, 0, 2)[:axes], (1, 0, 2)[:axes], 1, 1),
        ):  # fmt: skip
            how = {
                "stride": stride, "padding": padding, "output_padding": extra, "groups": groups, "dilation": dilation,
            }  # fmt: skip
            shapes = (2, 4, *(5, 4, 3)[:axes]), (4, 3, *(3, 2, 3)[:axes]), (3 * groups,)
            yield f"conv_transpose{axes}d", how, shapes


def sampled() -> Iterator[Case]:
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (False, True):
                how = {"mode": mode, "padding_mode": padding, "align_corners": corners}
                yield "grid_sample", how, ((2, 3, 4, 5), (2, 6, 7, 2))
                if mode != "bicubic":
                    yield "grid_sample", how, ((2, 2, 3, 4, 5), (2, 3, 3, 4, 3))
    for corners in (False, True):
        yield "affine_grid", {"size": (2, 1, 3, 4), "align_corners": corners}, ((2, 2, 3),)
        yield "affine_grid", {"size": (2, 1, 3, 4, 2), "align_corners": corners}, ((2, 3, 4),)


def patches() -> Iterator[Case]:
    for kernel, dilation, padding, stride in ((2, 1, 0, 1), ((3, 2), (1, 2), (1, 0), (2, 1)), (3, 2, 2, 2)):
        how = {"kernel_size": kernel, "dilation": dilation, "padding": padding, "stride": stride}
        yield "unfold", how, ((2, 3, 9, 8),)
        _, taps, columns = nn.unfold(torch.zeros(1, 1, 9, 8), **how).shape
        for batch in ((), (2,)):
            yield "fold", {**how, "output_size": (9, 8)}, ((*batch, 3 * taps, columns),)


def resized() -> Iterator[Case]:
    for mode, axes in (("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3)):
        for corners in (False, True):
            for how in ({"size": (5, 13, 4)[:axes]}, {"scale_factor": 1.7}, {"scale_factor": 0.6}):
                yield "interpolate", {**how, "mode": mode, "align_corners": corners}, (SIZES[axes],)
    for antialias in ({"size": (5, 13)}, {"scale_factor": 0.6}):
        yield "interpolate", {**antialias, "mode": "bicubic", "antialias": True}, (SIZES[2],)


def all_cases() -> Iterator[Case]:
    return itertools.chain(pools(), transposed(), sampled(), patches(), resized())


@pytest.mark.parametrize("name", sorted({case[0] for case in all_cases()}))
def test_functions_are_pytorchs(name: str) -> None:
    """Of random elements, and of small integers, many of which are equal."""
    for number, (function, options, shapes) in enumerate(all_cases()):
        if function != name:
            continue
        rng = np.random.default_rng(number)
        ours, theirs = (functools.partial(getattr(home, name), **options) for home in (sg.nn, nn))
        agree(ours, theirs, [rng.normal(size=shape) for shape in shapes])
        agree(ours, theirs, [rng.integers(-3, 4, size=shape).astype(float) for shape in shapes])


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("one_after_the_other", [False, True])
def test_the_loss_without_an_alignment_is_pytorchs(reduction: str, one_after_the_other: bool) -> None:
    """Of logits; labels that repeat, none at all, and too many for their turns among them."""
    rng = np.random.default_rng(1)
    logits, lengths = rng.normal(size=(8, 4, 5)), np.array([4, 2, 0, 4])
    for blank, turns in ((0, [8, 6, 8, 7]), (3, [8, 6, 0, 4])):
        labels = rng.integers(0, 4, size=(4, 4))
        labels += labels >= blank
        labels[:, 1] = labels[:, 0]
        given = np.concatenate([row[:k] for row, k in zip(labels, lengths, strict=True)])
        held = (given if one_after_the_other else labels, np.array(turns), lengths, blank, reduction, blank == 3)
        agree(
            lambda x, *rest: sg.nn.ctc_loss(sg.nn.log_softmax(x, -1), *rest),
            lambda x, *rest: nn.ctc_loss(nn.log_softmax(x, -1), *rest),
            [logits],
            held,
        )
