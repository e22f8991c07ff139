"""Every function that reads or writes at a user's indices, fed with indices and numbers out of range: none of them
reaches the primitives, whose compiled form would touch other memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.raw_indices import FAR, look_at_raw_indices
from support.sampling import rng_for

import staticgrad as sg
import staticgrad.nn.functional as F

pytestmark = pytest.mark.usefixtures("g")
INTS, FLOATS = "int64", "float64"

ODD = (np.nan, np.inf, -np.inf, 1e300, -1e300, 0.0, 0.5, 1.0, -1.0, 2.0)


def x_of(*shape: int) -> Any:
    return sg.constant(np.random.default_rng(0).standard_normal(shape))


# What a function reads, by kind and shape, and the function.
DOORS: dict[str, tuple[list[tuple[str, tuple[int, ...]]], Callable[..., Any]]] = {
    "subscript": ([(FLOATS, (4, 3)), (INTS, (2,))], lambda x, i: x[i]),
    "subscripts": ([(FLOATS, (4, 3, 2)), (INTS, (2,)), (INTS, (2,))], lambda x, i, j: x[i, :, j]),
    **{
        f"take {bounds}": ([(FLOATS, (4, 3)), (INTS, (2,))], lambda x, i, b=bounds: sg.take(x, i, 1, bounds=b))
        for bounds in ("error", "clip", "fill")
    },
    **{
        f"take_along_axis {bounds}": (
            [(FLOATS, (4, 3)), (INTS, (2, 3))],
            lambda x, i, b=bounds: sg.take_along_axis(x, i, 0, bounds=b),
        )
        for bounds in ("error", "clip", "fill")
    },
    **{
        f"scatter {mode} {bounds} {kept}": (
            [(FLOATS, (4, 3)), (INTS, (3,)), (FLOATS, (3, 3))],
            lambda x, i, u, m=mode, b=bounds, k=kept: sg.scatter(x, i, u, m, bounds=b, include_self=k),
        )
        for mode in ("set", "add", "mul", "mean", "max", "min")
        for bounds in ("error", "clip", "drop")
        for kept in ((True, False) if mode != "set" else (True,))
    },
    "scatter of a column": (
        [(FLOATS, (4, 3)), (INTS, (2,)), (FLOATS, (4, 2))],
        lambda x, i, u: sg.scatter(x, (slice(None), i), u, "set", bounds="drop"),
    ),
    "vmap of a subscript": ([(FLOATS, (4, 3)), (INTS, (4,))], lambda x, i: sg.vmap(lambda a, k: a[k])(x, i)),
    "vmap of a clipped read": (
        [(FLOATS, (4, 3)), (INTS, (4, 2))],
        lambda x, i: sg.vmap(lambda a, k: sg.take(a, k, 0, bounds="clip"))(x, i),
    ),
    **{
        f"vmap of a scatter {mode} {bounds}": (
            [(FLOATS, (4, 3)), (INTS, (4, 2)), (FLOATS, (4, 2))],
            lambda x, i, u, m=mode, b=bounds: sg.vmap(lambda a, k, v: sg.scatter(a, k, v, m, bounds=b))(x, i, u),
        )
        for mode in ("set", "add", "max")
        for bounds in ("error", "clip", "drop")
    },
    "vmap of indices alone": ([(INTS, (4, 2))], lambda i: sg.vmap(lambda k: x_of(3, 2)[k])(i)),
    "a loop over subscripts": (
        [(FLOATS, (4, 3)), (INTS, (2,))],
        lambda x, i: sg.scan(lambda carry, k: (carry + x[k], carry), sg.zeros(3, dtype=np.float64), i)[0],
    ),
    "embedding": ([(FLOATS, (4, 3)), (INTS, (2,))], lambda x, i: F.embedding(i, x)),
    "embedding with padding": ([(FLOATS, (4, 3)), (INTS, (2,))], lambda x, i: F.embedding(i, x, padding_idx=-1)),
    "vmap of an embedding": (
        [(FLOATS, (2, 4, 3)), (INTS, (2, 2))],
        lambda x, i: sg.vmap(lambda w, k: F.embedding(k, w))(x, i),
    ),
    "one_hot": ([(INTS, (3,))], lambda i: F.one_hot(i, 4)),
    "cross_entropy": ([(FLOATS, (2, 3)), (INTS, (2,))], lambda x, i: F.cross_entropy(x, i)),
    "cross_entropy with weights": (
        [(FLOATS, (2, 3)), (INTS, (2,)), (FLOATS, (3,))],
        lambda x, i, w: F.cross_entropy(x, i, weight=w, ignore_index=1),
    ),
    "nll_loss": ([(FLOATS, (2, 3)), (INTS, (2,))], lambda x, i: F.nll_loss(x, i)),
    "ctc_loss": (
        [(FLOATS, (4, 2, 3)), (INTS, (2, 2)), (INTS, (2,)), (INTS, (2,))],
        lambda x, t, n, m: F.ctc_loss(x, t, n, m),
    ),
    "lu_solve": (
        [(FLOATS, (3, 3)), (INTS, (3,)), (FLOATS, (3, 2))],
        lambda a, p, b: sg.linalg.lu_solve(a, p, b) + sg.linalg.lu_solve(a, p, b, transposed=True),
    ),
    "pivots_to_permutation": ([(INTS, (3,))], lambda p: sg.linalg.pivots_to_permutation(p)),
    "searchsorted": (
        [(FLOATS, (5,)), (FLOATS, (3,)), (INTS, (5,))],
        lambda edges, x, order: sg.searchsorted(edges, x, sorter=order),
    ),
    "searchsorted of many": ([(FLOATS, (3000,)), (FLOATS, (3,))], lambda edges, x: sg.searchsorted(edges, x)),
    "bincount": ([(INTS, (3,)), (FLOATS, (3,))], lambda i, w: sg.bincount(i, w, length=4)),
    "digitize": ([(FLOATS, (3,)), (FLOATS, (4,))], lambda x, edges: sg.digitize(x, edges)),
    "histogram": ([(FLOATS, (6,))], lambda x: sg.histogram(x, 5)),
    "histogram of a range": ([(FLOATS, (6,))], lambda x: sg.histogram(x, 5, range=(-1.0, 1.0))),
    "interp": ([(FLOATS, (3,)), (FLOATS, (4,)), (FLOATS, (4,))], lambda x, xp, fp: sg.interp(x, xp, fp)),
    "interp with a period": (
        [(FLOATS, (3,)), (FLOATS, (4,)), (FLOATS, (4,))],
        lambda x, xp, fp: sg.interp(x, xp, fp, period=2.0),
    ),
    "quantile": ([(FLOATS, (5,)), (FLOATS, (3,))], lambda x, q: sg.quantile(x, q)),
    **{
        f"grid_sample {mode} {padding} {aligned}": (
            [(FLOATS, (1, 2, 3, 3)), (FLOATS, (1, 2, 2, 2))],
            lambda x, grid, m=mode, p=padding, a=aligned: F.grid_sample(x, grid, m, p, a),
        )
        for mode in ("bilinear", "nearest")
        for padding in ("zeros", "border", "reflection")
        for aligned in (True, False)
    },
    "unique": ([(FLOATS, (5,))], lambda x: sg.unique(x, size=2)),
    "nonzero": ([(FLOATS, (5,))], lambda x: sg.nonzero(x, size=2)[0]),
    "lexsort": ([(FLOATS, (2, 5))], lambda x: sg.lexsort(x)),
    "sort": ([(FLOATS, (9,))], lambda x: sg.sort(x)),
    "topk": ([(FLOATS, (9,))], lambda x: sg.topk(x, 3)[0]),
    "median": ([(FLOATS, (9,))], lambda x: sg.median(x)),
    "cummax": ([(FLOATS, (9,))], lambda x: sg.cummax(x)),
    "cummin from the end": ([(FLOATS, (9,))], lambda x: sg.cummin(x, reverse=True)),
    "max_pool2d": ([(FLOATS, (1, 1, 4, 4))], lambda x: F.max_pool2d(x, 3, padding=1)),
    "repeat": ([(FLOATS, (3,))], lambda x: sg.repeat(x, 2)),
    "lu": ([(FLOATS, (3, 3))], lambda a: sg.linalg.lu(a)[1]),
    "lu of a tall matrix": ([(FLOATS, (5, 2))], lambda a: sg.linalg.lu(a)[1]),
    "solve": ([(FLOATS, (3, 3)), (FLOATS, (3, 2))], lambda a, b: sg.linalg.solve(a, b)),
}


@pytest.mark.parametrize("name", DOORS)
@pytest.mark.parametrize("are_open", [False, True], ids=["known", "open"])
def test_no_index_out_of_range_reaches_the_primitives(
    name: str, are_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_at_raw_indices(monkeypatch)
    operands, function = DOORS[name]
    rng = rng_for("doors", name)
    xs = [sg.placeholder((None,) * len(shape) if are_open else shape, kind) for kind, shape in operands]
    try:
        results = function(*xs)
    except sg.GraphError:
        assert are_open  # what has to know a size says so
        return
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    floating = [y for y in results if y.dtype.kind == "f"]
    by = [x for x in xs if x.dtype.kind == "f"]
    slopes = [d for d in sg.gradients(floating, by) if d is not None] if floating and by else []
    seconds = sg.gradients(slopes, by) if slopes and not are_open else []
    sess, completed = sg.Session(), 0
    for turn in range(6):
        feeds = {}
        for x, (kind, shape) in zip(xs, operands, strict=True):
            numbers = rng.standard_normal(shape)
            odd = np.where(rng.random(shape) < 0.4 * (turn % 3), rng.choice(ODD, shape), numbers)
            feeds[x] = rng.choice((FAR, FAR[3:7], [0])[turn % 3], shape) if kind == INTS else odd
        # A gradient may be computed without its value.
        for fetches in (results, slopes, [d for d in seconds if d is not None]):
            if fetches:
                try:
                    sess.run(fetches, feeds)
                    completed += 1
                except (sg.BoundsError, sg.FeedError):
                    pass
    assert completed, "no draw was in range"
