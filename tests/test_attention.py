"""Attention in blocks against attention at once: values, gradients of both orders, masks, memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.ops.neural import attention

RNG = np.random.default_rng(0)
SHAPES = [((2, 3, 17, 4), (2, 3, 17, 4)), ((17, 4), (9, 4)), ((3, 1, 8, 4), (1, 2, 30, 4)), ((1, 1, 3), (1, 5, 3))]


def results(query: tuple[int, ...], key: tuple[int, ...], causal: bool, mask: Any, target: bool = False) -> list[Any]:
    """The result, the gradients of query, key, value (and of a floating mask), and a second derivative."""
    rng = np.random.default_rng(1)
    with sg.Graph() as g:
        q, k, v = sg.constant(rng.normal(size=query)), *(sg.constant(rng.normal(size=key)) for _ in range(2))
        m = None if mask is None else sg.constant(mask)
        y = sg.nn.scaled_dot_product_attention(q, k, v, m, is_causal=causal)
        xs = [q, k, v, *([m] if target else [])]
        first = sg.gradients(y, xs, [rng.normal(size=y.shape)])
        return sg.Session(g).run([y, *first, *sg.gradients(first[0], [k])])


def masks(queries: int, keys: int) -> list[tuple[bool, Any]]:
    return [
        (False, None),
        (True, None),
        (False, RNG.normal(size=(queries, keys))),
        (False, RNG.random((queries, keys)) > 0.5),
        (False, RNG.random((1, keys)) > 0.5),
        (False, np.arange(queries)[:, None] % 3 > 0),  # some queries see no key at all
    ]


@pytest.mark.parametrize("block", [1, 40, 100])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_blocks_give_what_all_scores_at_once_give(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for causal, mask in masks(shapes[0][-2], shapes[1][-2]):
        monkeypatch.setattr(attention, "BLOCKWISE_FROM", 2**60)
        expected = results(*shapes, causal, mask)
        monkeypatch.setattr(attention, "BLOCKWISE_FROM", 1)
        monkeypatch.setattr(attention, "BLOCK_SCORES", block)
        for got, want in zip(results(*shapes, causal, mask), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


def test_the_gradient_of_a_floating_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as large as the scores, so these are computed at once; the forward is not."""
    mask = RNG.normal(size=(17, 9))
    expected = results((2, 17, 4), (2, 9, 4), False, mask, target=True)
    monkeypatch.setattr(attention, "BLOCKWISE_FROM", 1)
    monkeypatch.setattr(attention, "BLOCK_SCORES", 40)
    for got, want in zip(results((2, 17, 4), (2, 9, 4), False, mask, target=True), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_scores_of_a_long_sequence_are_never_stored(causal: bool) -> None:
    heads, length, features = 4, 2048, 16
    with sg.Graph() as g:
        q, k, v = (sg.placeholder((heads, length, features)) for _ in range(3))
        y = sg.nn.scaled_dot_product_attention(q, k, v, is_causal=causal)
        grads = sg.gradients(y, [q, k, v])
    forward = sg.Session(g, num_threads=1).compile(y, [q, k, v])
    both = sg.Session(g, num_threads=1).compile([y, *grads], [q, k, v])
    scores = heads * length * length * 4
    assert forward.memory.arena_bytes < scores / 16
    assert both.memory.arena_bytes < scores / 4
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
