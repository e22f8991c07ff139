"""Reads and writes of JAX, PyTorch and ONNX at indices out of range: however they say what becomes of these, none
reaches the primitives, whose compiled form would touch other memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from support.raw_indices import FAR, look_at_raw_indices
from support.sampling import rng_for

import staticgrad as sg

X = np.random.default_rng(0).standard_normal((4, 3))
JAX_READS = ("clip", "fill", "promise_in_bounds")
JAX_WRITES = ("clip", "drop", "promise_in_bounds")
TORCH = (
    "x[i]", "x[i, i]", "x.index_select(0, i)", "x.gather(0, i[None])", "torch.take(x, i)",
    "x.scatter(0, i[None], 2.0)", "x.scatter_add(0, i[None], x[:1])", "x.scatter_reduce(0, i[None], x[:1], 'amax')",
    "x.scatter_reduce(0, i[None], x[:1], 'mean')", "x.index_add(0, i, x[:3])", "x.index_copy(0, i, x[:3])",
    "x.index_fill(0, i, 1.0)", "x.index_put((i,), x[:3])", "x.index_put((i,), x[:3], accumulate=True)",
    "F.embedding(i, x)", "F.embedding_bag(i, x, torch.tensor([0, 1]))",
    "F.embedding_bag(torch.tensor([0, 1, 2]), x, i)",
    "F.nll_loss(x[:3], i)", "F.cross_entropy(x[:3], i)", "F.max_unpool1d(x[:1, :3][None], i[None, None], 2)",
    "torch.linalg.lu_solve(x[:3], i.int(), x[:3])", "torch.lu_unpack(x[:3], i.int())[0]",
)  # fmt: skip
ONNX = (
    "Gather <axis=0> (x, i)", "Gather <axis=1> (x, i)", "GatherElements <axis=1> (x, i2)", "GatherND (x, i3)",
    "ScatterElements <axis=1> (x, i2, u2)", 'ScatterElements <axis=1, reduction="max"> (x, i2, u2)',
    'ScatterElements <axis=1, reduction="mul"> (x, i2, u2)', "ScatterND (x, i3, u3)",
    'ScatterND <reduction="add"> (x, i3, u3)', 'ScatterND <reduction="min"> (x, i3, u3)',
)  # fmt: skip


@pytest.fixture(autouse=True)
def looked_at(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_raw_indices(monkeypatch)


def draw(result: sg.Tensor, x: sg.Tensor, feeds: dict[sg.Tensor, Any], *salt: str) -> None:
    """Run a result and its gradient at drawn indices, where shapes stand in the place of these; some draws are in
    range."""
    rng, sess, completed = rng_for("indices", *salt), sg.Session(), 0
    slopes = [d for d in sg.gradients(result, [x]) if d is not None]
    for turn in range(6):
        given = {}
        for t, value in feeds.items():
            limits = np.iinfo(t.dtype) if isinstance(value, tuple) else None
            far = [n for n in FAR if limits is not None and limits.min <= n <= limits.max]
            near = [n for n in far if -2 <= n <= 3]
            given[t] = value if limits is None else rng.choice((far, near, [0])[turn % 3], value).astype(t.dtype)
        for fetches in ([result], slopes):
            try:
                sess.run(fetches, given)
                completed += 1
            except (sg.BoundsError, sg.FeedError):
                pass
    assert completed


def jax_functions() -> dict[str, Callable[[Any, Any], Any]]:
    jax = pytest.importorskip("jax")
    lax = jax.lax
    found: dict[str, Callable[[Any, Any], Any]] = {
        "dynamic_slice": lambda x, i: lax.dynamic_slice(x, (i[0], i[1]), (2, 2)),
        "dynamic_update_slice": lambda x, i: lax.dynamic_update_slice(x, x[:2, :2] * 2, (i[0], i[1])),
        "dynamic_index_in_dim": lambda x, i: lax.dynamic_index_in_dim(x, i[0]),
        "vmap of dynamic_slice": lambda x, i: jax.vmap(lambda k: lax.dynamic_slice(x, (k, k), (2, 2)))(i),
        "take_along_axis": lambda x, i: jax.numpy.take_along_axis(x, i[None] + 0 * i[:1, None], axis=0),
        "segment_sum": lambda x, i: jax.ops.segment_sum(x[:3], i, num_segments=4),
        "segment_max": lambda x, i: jax.ops.segment_max(x[:3], i, num_segments=4),
    }
    for mode in JAX_READS:
        found[f"get {mode}"] = lambda x, i, m=mode: x.at[i, i].get(mode=m)
        found[f"vmap of get {mode}"] = lambda x, i, m=mode: jax.vmap(lambda a, k: a.at[k].get(mode=m))(x[:3], i)
    for mode in JAX_WRITES:
        for name in ("set", "add", "multiply", "max"):

            def write(x: Any, i: Any, m: str = mode, n: str = name) -> Any:
                return getattr(x.at[i], n)(2.0, mode=m)

            found[f"{name} {mode}"] = write
            found[f"vmap of {name} {mode}"] = lambda x, i, w=write: jax.vmap(w)(x[:3], i)
    return found


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint32"])
def test_indices_out_of_range_in_functions_of_jax(dtype: str) -> None:
    functions = jax_functions()
    from staticgrad.jax import convert

    for name, function in functions.items():
        x, i = sg.placeholder(X.shape, "float64"), sg.placeholder((3,), dtype)
        draw(convert(function)(x, i), x, {x: X, i: (3,)}, name, dtype)


@pytest.mark.parametrize("text", TORCH)
def test_indices_out_of_range_in_functions_of_pytorch(text: str) -> None:
    torch = pytest.importorskip("torch")
    from staticgrad.torch import convert

    names = {"torch": torch, "F": torch.nn.functional}

    class Reader(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any, i: Any) -> Any:
            return eval(text, names, {"x": x, "i": i})

    net = convert(Reader(), torch.from_numpy(X), torch.tensor([0, 1, 2]))
    x, i = sg.placeholder(X.shape, "float64"), sg.placeholder((3,), "int64")
    draw(net(x, i), x, {x: X, i: (3,)}, text)


@pytest.mark.parametrize("text", ONNX)
def test_indices_out_of_range_in_onnx(text: str) -> None:
    parser = pytest.importorskip("onnx").parser
    from staticgrad.onnx import load

    shapes: dict[str, Sequence[int]] = {"x": (4, 3), "i": (2,), "i2": (4, 2), "i3": (2, 1), "u2": (4, 2), "u3": (2, 3)}
    kinds = {name: "int64" if name[0] == "i" else "float" for name in shapes}
    inputs = ", ".join(f"{kinds[name]}[{','.join(map(str, shape))}] {name}" for name, shape in shapes.items())
    net = load(parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> f ({inputs}) => (y) {{ y = {text} }}'))
    given = {name: sg.placeholder(shape, kinds[name].replace("float", "float32")) for name, shape in shapes.items()}
    result = net(*given.values())
    rng = rng_for(text)
    feeds: dict[sg.Tensor, Any] = {}
    for name, x in given.items():
        feeds[x] = shapes[name] if name[0] == "i" else rng.standard_normal(shapes[name]).astype(np.float32)
    draw(result[0] if isinstance(result, (list, tuple)) else result, given["x"], feeds, text)
