"""``einsum`` over several operands: any subscripts, in an order that costs little, in derivatives too."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.selection import rotating

import staticgrad as sg
from staticgrad.ops.einsum import EXACT, EinsumAttributes, contraction_order

LABELS = "abcdef"
SIZES = dict(zip(LABELS, (2, 3, 4, 1, 5, 2), strict=True))


def drawn(seed: int) -> tuple[str, list[np.ndarray]]:
    """Subscripts of three to eight operands, with labels of one operand alone, repeated ones and axes of size 1."""
    rng = np.random.default_rng(seed)
    terms = ["".join(rng.choice(list(LABELS), rng.integers(0, 4))) for _ in range(rng.integers(3, 9))]
    known = sorted(set("".join(terms)))
    result = "".join(rng.permutation([c for c in known if rng.random() < 0.4]))
    short = [(number, c) for number, term in enumerate(terms) for c in set(term) if rng.random() < 0.1]
    shapes = [
        tuple(1 if (number, c) in short and len(set(term)) == len(term) else SIZES[c] for c in term)
        for number, term in enumerate(terms)
    ]
    return f"{','.join(terms)}->{result}", [rng.normal(size=shape) for shape in shapes]


@pytest.mark.parametrize("seed", range(40))
def test_drawn_subscripts_give_what_numpy_gives_for_each_of_a_batch_too(seed: int) -> None:
    subscripts, arrays = drawn(seed)
    with sg.Graph() as graph:
        inputs = [sg.placeholder(x.shape, x.dtype) for x in arrays]
        y = sg.einsum(subscripts, *inputs)
        first = sg.placeholder((3, *arrays[0].shape), np.float64)
        each = sg.vmap(lambda x: sg.einsum(subscripts, x, *inputs[1:]))(first)
    several = np.stack([arrays[0], -arrays[0], 2 * arrays[0]])
    with sg.Session(graph) as session:
        found, batch = session.run([y, each], {first: several, **dict(zip(inputs, arrays, strict=True))})
    expected = np.einsum(subscripts, *arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(batch, np.stack([expected, -expected, 2 * expected]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", rotating(range(0, 40, 8), 5))
def test_derivatives_of_drawn_subscripts_agree_with_differences(seed: int) -> None:
    subscripts, arrays = drawn(seed)
    sg.check_gradients(lambda *xs: sg.einsum(subscripts, *xs), arrays, order=2)


def work(attrs: EinsumAttributes, sizes: dict[str, int]) -> int:
    """Multiply-adds in the order that is chosen."""
    terms, total = list(attrs.operands), 0
    for a, b in contraction_order(attrs, sizes):
        rest = [x for number, x in enumerate(terms) if number not in (a, b)]
        joined = set(terms[a] + terms[b])
        total += math.prod(sizes[c] for c in joined)
        terms = [*rest, "".join(sorted(joined & set(attrs.result + "".join(rest))))]
    return total


@pytest.mark.parametrize("count", [3, EXACT, EXACT + 3])
def test_a_chain_of_matrices_that_ends_in_a_vector_is_multiplied_from_there(count: int) -> None:
    labels = LABELS + "ghijk"
    chain = EinsumAttributes((*(labels[i : i + 2] for i in range(count - 1)), labels[count - 1]), labels[0])
    assert work(chain, dict.fromkeys(labels, 100)) == (count - 1) * 100**2


def test_tangents_of_one_operand_are_multiplied_by_the_product_of_the_others() -> None:
    """Bones that move vertices: the products of positions and weights are the same for all tangents of the bones."""
    bones, vertices, count = 20, 300, 25
    with sg.Graph() as graph:
        a = sg.placeholder((bones, 3, 4), name="bones")
        x, w = sg.placeholder((vertices, 4), name="x"), sg.placeholder((vertices, bones), name="w")
        directions = sg.placeholder((count, bones, 3, 4), name="directions")
        y = sg.einsum("bij,vj,vb->vi", a, x, w)
        slopes = sg.vmap(lambda direction: sg.jvp(y, [a], [direction])[0])(directions)
        slope = sg.Session(graph).compile(slopes, [a, x, w, directions])
    products = [kernel for kernel in slope.cost.kernels if kernel.family == "contraction"]
    assert [kernel.flops for kernel in products] == [2 * (count * 3) * (4 * bones) * vertices]
    assert slope.memory.arena_bytes < 2 * 4 * vertices * (4 * bones + 3 * count)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=t.shape).astype(np.float32) for t in (a, x, w, directions)]
    expected = np.einsum("tbij,vj,vb->tvi", arrays[3], arrays[1], arrays[2])
    np.testing.assert_allclose(slope(*arrays), expected, rtol=1e-4, atol=1e-4)


def test_a_product_of_merged_axes_of_a_transposed_tensor_copies_it_once() -> None:
    x, y = sg.placeholder((6, 4, 5), name="x"), sg.placeholder((3, 20), name="y")
    step = sg.Session().compile(y @ sg.permute_dims(x, (2, 1, 0)).reshape(20, 6), [x, y])
    assert [kernel.family for kernel in step.cost.kernels] == ["pointwise", "contraction"]
    side_by_side = sg.Session().compile(sg.einsum("acb,dcb->ad", x, y.reshape(3, 4, 5)), [x, y])
    assert [kernel.family for kernel in side_by_side.cost.kernels] == ["contraction"]
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=t.shape).astype(np.float32) for t in (x, y)]
    expected = arrays[1] @ arrays[0].transpose(2, 1, 0).reshape(20, 6)
    np.testing.assert_allclose(step(*arrays), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("spec", "shapes"),
    [
        ("bi,oij,bj->bo", ((30, 8), (6, 8, 10), (30, 10))),
        ("bij,vj,vb->vi", ((5, 3, 4), (60, 4), (60, 5))),
        ("bij,bj->bi", ((30, 5, 7), (30, 7))),
        ("bj,bjk->kb", ((30, 7), (30, 7, 5))),
        ("bi,bi->b", ((30, 9), (30, 9))),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_a_small_matrix_for_each_vector_is_no_product_of_matrices(
    spec: str, shapes: tuple[tuple[int, ...], ...], dtype: str
) -> None:
    """None of its elements is used twice; the result of the product before has each of them in one place."""
    rng = np.random.default_rng(1)
    arrays = [rng.integers(-9, 9, shape).astype(dtype) for shape in shapes]
    with sg.Graph() as graph:
        xs = [sg.placeholder(x.shape, x.dtype) for x in arrays]
        step = sg.Session(graph).compile(sg.einsum(spec, *xs), xs)
    assert "contraction" not in [kernel.family for kernel in step.cost.kernels][len(shapes) - 2 :]
    np.testing.assert_array_equal(step(*arrays), np.einsum(spec, *arrays))


def test_gradients_of_a_bilinear_form_are_those_of_products_in_turn() -> None:
    rng = np.random.default_rng(2)
    arrays = [rng.normal(size=shape) for shape in ((30, 8), (6, 8, 10), (30, 10), (30, 6))]
    with sg.Graph() as graph:
        x, w, y, ct = (sg.placeholder(a.shape, sg.float64) for a in arrays)
        slopes = sg.gradients(sg.einsum("bi,oij,bj->bo", x, w, y), [x, w, y], grad_ys=ct)
        step = sg.Session(graph).compile(slopes, [x, w, y, ct])
    a, b, c, d = arrays
    expected = [
        np.einsum("bo,oij,bj->bi", d, b, c), np.einsum("bi,bo,bj->oij", a, d, c), np.einsum("bi,oij,bo->bj", a, b, d),
    ]  # fmt: skip
    for got, want in zip(step(*arrays), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
