"""Attention in blocks against attention at once: values, gradients of both orders, masks, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.ops.neural import attention

RNG = np.random.default_rng(0)
# Shapes of query and key, scores of a block: several blocks with a short one at the end, of one query each, one of all.
CASES = [
    ((2, 3, 5, 4), (2, 3, 5, 4), 18),
    ((5, 4), (9, 4), 20),
    ((3, 1, 3, 4), (1, 2, 10, 4), 1),
    ((3, 1, 3, 4), (1, 2, 10, 4), 100),
    ((1, 1, 3), (1, 5, 3), 1),
]


def results(query: Sequence[int], key: Sequence[int], masks: Sequence[tuple[bool, Any]], target: bool = False) -> Any:
    """For each mask the result, the gradients of query, key, value (and of a floating mask), and a second derivative:
    all of one program."""
    rng = np.random.default_rng(1)
    with sg.Graph() as g:
        arrays = [rng.normal(size=shape) for shape in (query, key, key)]
        q, k, v = xs = [sg.placeholder(array.shape, sg.float64) for array in arrays]
        fetches, feeds = [], dict(zip(xs, arrays, strict=True))
        for causal, mask in masks:
            m = None
            if mask is not None:
                m = sg.placeholder(mask.shape, mask.dtype)
                feeds[m] = mask
            y = sg.nn.scaled_dot_product_attention(q, k, v, m, is_causal=causal)
            first = sg.gradients(y, [*xs, *([m] if target else [])], [rng.normal(size=y.shape)])
            fetches.append([y, *first, *sg.gradients(first[0], [k])])
        return sg.Session(g).run(fetches, feeds)


def masks(queries: int, keys: int) -> list[tuple[bool, Any]]:
    return [
        (False, None),
        (True, None),
        (False, RNG.normal(size=(queries, keys))),
        (False, RNG.random((queries, keys)) > 0.5),
        (False, RNG.random((1, keys)) > 0.5),
        (False, np.arange(queries)[:, None] % 3 > 0),  # some queries see no key at all
    ]


def close(got: Any, want: Any) -> None:
    for a, b in zip(sg.nest.flatten(got), sg.nest.flatten(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.share(2)
@pytest.mark.parametrize(("query", "key", "block"), CASES)
def test_blocks_give_what_all_scores_at_once_give(
    query: tuple[int, ...], key: tuple[int, ...], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = masks(query[-2], key[-2])
    monkeypatch.setattr(attention, "BLOCKWISE_FROM", 2**60)
    expected = results(query, key, cases)
    monkeypatch.setattr(attention, "BLOCKWISE_FROM", 1)
    monkeypatch.setattr(attention, "BLOCK_SCORES", block)
    close(results(query, key, cases), expected)


def test_the_gradient_of_a_floating_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as large as the scores, so these are computed at once; the forward is not."""
    cases = [(False, RNG.normal(size=(5, 9)))]
    expected = results((2, 5, 4), (2, 9, 4), cases, target=True)
    monkeypatch.setattr(attention, "BLOCKWISE_FROM", 1)
    monkeypatch.setattr(attention, "BLOCK_SCORES", 20)
    close(results((2, 5, 4), (2, 9, 4), cases, target=True), expected)


@pytest.mark.parametrize("causal", [False, True])
def test_scores_of_a_long_sequence_are_never_stored(causal: bool) -> None:
    heads, length, features = 4, 1024, 16
    with sg.Graph() as g:
        q, k, v = (sg.placeholder((heads, length, features)) for _ in range(3))
        y = sg.nn.scaled_dot_product_attention(q, k, v, is_causal=causal)
        grads = sg.gradients(y, [q, k, v])
    forward = sg.Session(g, num_threads=1).compile(y, [q, k, v])
    both = sg.Session(g, num_threads=1).compile([y, *grads], [q, k, v])
    scores = heads * length * length * 4
    assert forward.memory.arena_bytes < scores / 8
    assert both.memory.arena_bytes < scores / 2
    arrays = [RNG.normal(size=q.shape).astype(np.float32) for _ in range(3)]
    a, b, c = (x.astype(np.float64) for x in arrays)
    s = np.einsum("hld,hsd->hls", a, b) / 4
    s = np.where(np.tri(length, dtype=bool) | (not causal), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    np.testing.assert_allclose(forward(*arrays), (p / p.sum(-1, keepdims=True)) @ c, rtol=1e-4, atol=1e-5)


def test_a_tape_reads_operands_alone() -> None:
    """What is saved is the same in blocks and at once: query, key and value."""
    with sg.Graph() as g:
        q = sg.placeholder((2, 1100, 8), requires_grad=True)
        y = sg.sum(sg.nn.scaled_dot_product_attention(q, q, q))
    sess = sg.Session(g)
    tape = sess.forward(y, {q: np.ones((2, 1100, 8), np.float32)})
    assert tape.memory.saved_bytes < 4 * 2 * 1100 * 8 * 4
    tape.backward(y)
    with pytest.raises(sg.BuffersFreedError):
        tape.backward(y)


@pytest.mark.parametrize("dtype", [sg.float32, sg.bool])
def test_a_mask_of_no_keys_masks_nothing(dtype: Any) -> None:
    """The maximum of a row of scores was asked for, of which there were none."""
    with sg.Graph() as graph:
        q, mask = sg.placeholder((3, 4)), sg.constant(np.zeros((3, 0), dtype))
        y = sg.nn.scaled_dot_product_attention(q, sg.zeros((0, 4)), sg.zeros((0, 2)), mask)
        slope = sg.gradients(sg.sum(y), q)
    found = sg.Session(graph).run([y, slope], {q: np.ones((3, 4), np.float32)})
    np.testing.assert_array_equal(found[0], np.zeros((3, 2)))
    np.testing.assert_array_equal(found[1][0], np.zeros((3, 4)))
