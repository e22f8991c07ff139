"""Slices of axes whose sizes feeds bind, which reach past an end at small sizes: NumPy's at every size.

The drawn slices are compared with NumPy, values and gradients, as programs for ranges of sizes, as exact programs and
as the interpreter runs them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.sampling import rng_for
from support.selection import slow

import staticgrad as sg
from staticgrad.base.types import bind_size
from staticgrad.ops.views.slicing import bounds_within, slice_length

Array = np.ndarray[Any, np.dtype[Any]]
Key = tuple[slice, ...]

SIZES = (*range(10), *range(15, 19))
BOUNDS = (None, *range(-7, 8))
STEPS = (1, 1, 1, -1, 2, -2, 3, -3)
COUNT = 96  # drawn programs, of which the first ones are always run
ALWAYS = 4


def drawn_slice(rng: np.random.Generator) -> slice:
    start, stop = (BOUNDS[int(rng.integers(len(BOUNDS)))] for _ in range(2))
    return slice(start, stop, STEPS[int(rng.integers(len(STEPS)))])


def placed(part: Array, key: Key, shape: tuple[int, ...]) -> Array:
    """Zeros with ``part`` in the place of a slice: its transpose."""
    whole = np.zeros(shape)
    whole[key] = part
    return whole


# -- the bounds of a slice --------------------------------------------------------------------------------------------


def test_bounds_of_slices_are_those_of_python_at_every_size() -> None:
    """Of a slice with numbers, and with sizes, as bounds; what is read lies within the axis."""
    n = sg.dim("n")
    (symbol,) = n.terms[0][0]
    rng = rng_for("bounds of slices")
    sizes = (n, n - 1, n - 3, n - 6, n + 2, 3 - n, -n, n // 2, 2 * n - 5)
    for _ in range(100):
        start, stop = ((*BOUNDS, *sizes)[int(rng.integers(len(BOUNDS) + len(sizes)))] for _ in range(2))
        step = STEPS[int(rng.integers(len(STEPS)))]
        found = bounds_within(start, stop, step, n)
        for size in SIZES:
            here: Any = {symbol: size}
            given = slice(*(value if value is None else bind_size(value, here) for value in (start, stop, step)))
            first, last, by = (bind_size(value, here) for value in found)
            what = f"{given} as {found} at {size}"
            assert list(range(first, last, by)) == list(range(size)[given]), what
            assert bind_size(slice_length(*found), here) == len(range(size)[given]), what
            assert 0 <= first <= last <= size if by > 0 else -1 <= last <= first <= max(size - 1, -1), what


@pytest.mark.parametrize(
    ("key", "size"),
    [
        ((1, None), "max(n - 1, 0)"),
        ((None, -2), "max(n - 2, 0)"),
        ((-5, None), "min(n, 5)"),
        ((None, 5), "min(n, 5)"),
        ((2, -2), "max(n - 4, 0)"),
        ((2, 5), "max(n - 2, 0) - max(n - 5, 0)"),
        ((5, 2), "0"),
        ((None, None, -1), "n"),
        ((1, None, 3), "((max(n - 1, 0) + 2) // 3)"),
        ((None, sg.dim("n") - 1), "max(n - 1, 0)"),
        ((sg.dim("n") // 2, None), "-(n // 2) + n"),
        ((None, sg.dim("n")), "n"),
    ],
)
def test_sizes_of_slices_read_as_declared(key: tuple[Any, ...], size: str) -> None:
    n = sg.dim("n")
    assert str(slice_length(*bounds_within(*key[:2], *(key[2:] or (1,)), n))) == size


def test_equal_sizes_of_slices_are_equal_as_declared(g: sg.Graph) -> None:
    x = sg.placeholder((sg.dim("n"),))
    assert x[1:].shape == x[:-1].shape
    assert x[:5].shape == x[-5:].shape
    assert x[1:][1:].shape == x[2:].shape
    assert x[:5][1:].shape == x[1:5].shape
    assert x[1:-1][:-2].shape == x[4:].shape
    assert sg.concat([x[:3], x[3:]]).shape == x.shape
    assert sg.roll(x, 3).shape == x.shape


# -- drawn slices -----------------------------------------------------------------------------------------------------


def drawn_programs() -> list[Any]:
    return [seed if seed < ALWAYS else slow(seed) for seed in range(COUNT)]


@pytest.mark.parametrize("seed", drawn_programs())
def test_drawn_slices_are_those_of_numpy(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice of one open axis, or one of each of two, or a slice of a slice."""
    rng = rng_for("drawn slices", seed)
    keys: list[Key] = [(drawn_slice(rng),)]
    if seed % 3 == 1:
        keys = [(keys[0][0], drawn_slice(rng))]
    if seed % 3 == 2:
        keys.append((drawn_slice(rng),))
    with sg.Graph() as graph:
        n, m = sg.dim("n"), sg.dim("m")
        x = sg.placeholder((n, m if len(keys[0]) == 2 else 3), sg.float64, requires_grad=True)
        y = x
        for key in keys:
            y = y[key]
        loss = sg.sum(y * y) * 0.5 + sg.sum(x)
        (slope,) = sg.gradients(loss, [x])
        (tangent,) = sg.jvp(loss, [x], [sg.ones_like(x)])
    fetches = [y, slope, tangent, sg.shape(y)] if y.ndim else [y, slope, tangent]
    ranged, exact = sg.Session(graph), sg.Session(graph, sizes="exact")
    for place, size in enumerate(rng.permutation(SIZES)):
        a = rng.normal(size=(int(size), (int(size) + 3) % 10 if len(keys[0]) == 2 else 3))
        parts = [a]
        for key in keys:
            parts.append(parts[-1][key])
        back = parts[-1]
        for part, key in zip(parts[-2::-1], keys[::-1], strict=True):
            back = placed(back, key, part.shape)
        back = back + 1
        what = f"{keys} of {a.shape}"
        found = [("ranges", ranged.run(fetches, {x: a}))]
        if place < 2:
            found.append(("exact", exact.run(fetches, {x: a})))
        with monkeypatch.context() as other:
            other.setenv("STATICGRAD_BACKEND", "reference")
            found.append(("reference", exact.run(fetches, {x: a})))
        for kind, (part, slopes, rise, shape) in found:
            np.testing.assert_array_equal(part, parts[-1], err_msg=f"{what}, {kind}")
            np.testing.assert_allclose(slopes, back, rtol=1e-12, err_msg=f"{what}, {kind}")
            assert abs(rise - back.sum()) < 1e-9, f"{what}, {kind}"
            assert tuple(shape) == parts[-1].shape, f"{what}, {kind}"


# -- slices in programs -----------------------------------------------------------------------------------------------

Program = Callable[[Any, Any], Any]  # of an array or tensor of (n, 3) and of numpy or staticgrad


def sums_of_pairs(o: Any, x: Any) -> Any:
    """A scan over a slice; its last carry, in NumPy the same sum."""
    if o is np:
        return (x[1:] * x[:-1]).sum(0)
    pairs = (x[1:], x[:-1])
    return sg.scan(lambda c, row: (c + row[0] * row[1], None), sg.zeros(3, dtype=sg.float64), pairs)[0]


PROGRAMS: dict[str, Program] = {
    "neighbours": lambda o, x: (x[1:] - x[:-1]) ** 2,
    "added": lambda o, x: x[:5] + x[-5:],
    "first row from all": lambda o, x: x - x[:1],
    "last row by all": lambda o, x: x * x[-1:] + x,
    "one row and one row": lambda o, x: x[:1] * x[-1:],
    "scaled by another slice": lambda o, x: x[4:] * o.sum(x[:4] ** 2),
    "turned": lambda o, x: o.concatenate([x[3:], x[:3]]) if o is np else sg.concat([x[3:], x[:3]]),
    "a mean of the last": lambda o, x: o.sum(x[-4:] ** 2) / (x.shape[0] + 1),
    "flat": lambda o, x: o.reshape(x[2:], (-1,))[1:] ** 2,
    "two axes": lambda o, x: o.matmul(x, x[:-2].T)[1:, -3:],
    "beside zeros": lambda o, x: o.zeros(x[3:].shape, dtype=o.float64) + x[3:] ** 2,
    "strided": lambda o, x: x[5::-2] * x[:6][::2],
    "differences": lambda o, x: o.diff(x, n=2, axis=0) ** 2,
    "rolled": lambda o, x: o.roll(x, 5, axis=0) * x,
    "rolled back": lambda o, x: o.roll(x, -3, axis=0) * x,
    "split": lambda o, x: o.split(x, [2, -3], axis=0)[1] ** 2,
    "half": lambda o, x: x[x.shape[0] // 2 :] ** 2,
    "all but the last": lambda o, x: x[: x.shape[0] - 1] ** 2,
    "wrapped": lambda o, x: x[x.shape[0] - 3 :] ** 2,
    "nothing": lambda o, x: x[5:2] ** 2,
    "a scan": sums_of_pairs,
    "reduced": lambda o, x: o.sum(x[1:] ** 2, axis=1) + o.max(x * x, axis=1)[1:],
}
QUICK = (9, 1, 4, 17, 0, 3)
RANGES = {"neighbours": 3, "added": 4, "first row from all": 3, "rolled": 4, "rolled back": 4}  # programs for QUICK


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_slices_past_an_end_give_what_numpy_gives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values; gradients against differences of NumPy's, and at each size as the interpreter computes them."""
    program, rng = PROGRAMS[name], rng_for("programs of slices", name)
    with sg.Graph() as graph:
        x = sg.placeholder((sg.dim("n"), 3), sg.float64, requires_grad=True)
        y = program(sg, x)
        (slope,) = sg.gradients(sg.sum(sg.sin(y)), [x])
    session, reference = sg.Session(graph), sg.Session(graph)
    for size in QUICK:
        a, away = rng.normal(size=(size, 3)), rng.normal(size=(size, 3)) * 1e-6
        value, slopes = session.run([y, slope], {x: a})
        with monkeypatch.context() as other:
            other.setenv("STATICGRAD_BACKEND", "reference")
            np.testing.assert_allclose(reference.run([y, slope], {x: a})[1], slopes, rtol=1e-9, atol=1e-12)
        want = program(np, a)
        assert value.shape == want.shape
        np.testing.assert_allclose(value, want, rtol=1e-12, atol=1e-12)
        rise = np.sin(program(np, a + away)).sum() - np.sin(program(np, a - away)).sum()
        assert abs(rise - 2 * (slopes * away).sum()) < 1e-9 * (size + 1), f"at {size}"
    if name in RANGES:
        assert session.compile_count == RANGES[name]


def test_a_range_on_one_side_of_an_end_has_one_program(g: sg.Graph) -> None:
    """Only a range in which a slice stops reaching past the end is cut, there."""
    x = sg.placeholder((sg.dim("n"),), sg.float64)
    session = sg.Session(g)
    y = [x[1:], x[-5:], x[:-2], x[::-1]]
    for size in range(5, 17):
        session.run(y, {x: np.ones(size)})
    assert session.compile_count == 1
    for size in (2, 3, 4):
        session.run(y, {x: np.ones(size)})
    assert session.compile_count == 2
    for size in range(17, 33):
        assert [len(part) for part in session.run(y, {x: np.ones(size)})] == [size - 1, 5, size - 2, size]
    assert session.compile_count == 3


def test_a_table_is_sliced_up_to_an_open_size(g: sg.Graph) -> None:
    """Position vectors are the case: the shape stays as it is, and a size beyond the table is refused."""
    n = sg.dim("n")
    x = sg.placeholder((n, 2), sg.float64)
    table = sg.constant(np.arange(24.0).reshape(12, 2))
    y = x + table[:n]
    assert y.shape == (n, 2)
    session = sg.Session(g)
    for size in (3, 12, 1, 0):
        np.testing.assert_array_equal(
            session.run(y, {x: np.ones((size, 2))}), 1 + np.arange(24.0).reshape(12, 2)[:size]
        )
    with pytest.raises(sg.StaticGradError):
        session.run(y, {x: np.ones((13, 2))})


def test_an_index_past_the_end_is_no_slice(g: sg.Graph, backend: str) -> None:
    x = sg.placeholder((sg.dim("n"), 2))
    y = x[3] + sg.sum(x[3:])
    session = sg.Session(g)
    assert session.run(y, {x: np.ones((5, 2), np.float32)}).tolist() == [5, 5]
    for size in (3, 1, 0):
        with pytest.raises(sg.StaticGradError):
            session.run(y, {x: np.ones((size, 2), np.float32)})


def test_tapes_and_vmap_of_slices_past_an_end(g: sg.Graph) -> None:
    x = sg.placeholder((sg.dim("n"), 3), sg.float64, requires_grad=True)
    y = x[-4:] * x[:4] + sg.vmap(lambda column: column[:4] * sg.sum(column[2:]), in_axes=1, out_axes=1)(x)
    session = sg.Session(g)
    for size in (6, 3, 1, 0, 20):
        a = np.random.default_rng(size).normal(size=(size, 3))
        tape = session.forward([y], {x: a})
        np.testing.assert_allclose(tape[y], a[-4:] * a[:4] + a[:4] * a[2:].sum(0), rtol=1e-12)
        tape.backward([y], [np.ones((min(size, 4), 3))])
        want = np.zeros((size, 3))
        want[-4:] += a[:4]
        want[:4] += a[-4:] + a[2:].sum(0)
        want[2:] += a[:4].sum(0)
        np.testing.assert_allclose(session.grad(x), want, rtol=1e-9, atol=1e-12)
        session.zero_grad()


def test_texts_and_files_hold_slices_past_an_end(g: sg.Graph, tmp_path: Path) -> None:
    """Also where a symbol is named as what a text calls extremes."""
    n, least = sg.dim("n"), sg.dim("min")
    x, z = sg.placeholder((n, 3), sg.float64, name="x"), sg.placeholder((least,), sg.float64, name="z")
    total, _ = sg.scan(lambda c, row: (x[1:] * row[0] + c, None), sg.zeros((n - 1, 3), dtype=sg.float64), x)
    y = [total, x[-5:][::2], x[:1] + x, z[2:-2], x[n - 3 :], sg.roll(x, 2, axis=0)]
    again = sg.parse(g.text(full=True))
    assert again.text(full=True) == g.text(full=True)
    sg.save_graph(tmp_path / "slices.sgt", g, entries={"main": (y, [x, z])})
    loaded = sg.load_graph(tmp_path / "slices.sgt")
    session, main = sg.Session(g), sg.Session(loaded).compile(*loaded.entries["main"])
    for size in (7, 2, 1):
        a = np.random.default_rng(0).normal(size=(size, 3))
        want, got = session.run(y, {x: a, z: a[:, 0]}), main(a, a[:, 0])
        for one, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_size_that_must_be_known_is_stated_by_a_reshape(g: sg.Graph) -> None:
    x = sg.placeholder((None, None), sg.float64)
    with pytest.raises(sg.GraphError, match=r"inv: the rows and columns of .* must be known when declared; sg.reshape"):
        sg.linalg.inv(x[:2, :2])
    inverse = sg.linalg.inv(sg.reshape(x[:2, :2], (2, 2)))
    sess = sg.Session(g)
    np.testing.assert_array_equal(sess.run(inverse, {x: 2 * np.eye(3)}), np.eye(2) / 2)
    with pytest.raises(sg.GraphError, match="has 1 elements"):
        sess.run(inverse, {x: np.eye(1)})
