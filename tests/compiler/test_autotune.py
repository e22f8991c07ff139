"""Autotuning: any blocking gives the same bits; the fastest is chosen and remembered; nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.selection import every_pair
from support.targets import HERE

import staticgrad as sg
from staticgrad.base.types import TensorType
from staticgrad.compiler.binary import binary
from staticgrad.compiler.emit.families import plan_kernel
from staticgrad.compiler.kernels.matrix import Blocking, Contraction
from staticgrad.compiler.machine.target import AVX2, TARGETS
from staticgrad.compiler.native import cache
from staticgrad.compiler.options import CompileOptions
from staticgrad.compiler.pipeline import compile_region
from staticgrad.compiler.plans.contraction.blocking import blockings
from staticgrad.compiler.plans.contraction.plan import plan_of
from staticgrad.compiler.regions.cut import cut
from staticgrad.compiler.regions.region import Region
from staticgrad.runtime.running.native import NativeRunner
from staticgrad.runtime.session import autotune

F32 = np.dtype("float32")
Timing = Callable[[Sequence[NativeRunner], Sequence[np.ndarray]], list[np.ndarray]]


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache, and a process, that remember nothing."""
    monkeypatch.setenv("STATICGRAD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("STATICGRAD_BACKEND", "compiled")
    monkeypatch.delenv("STATICGRAD_CACHE", raising=False)
    monkeypatch.setattr(autotune, "_chosen", {})
    monkeypatch.setattr(autotune, "SECONDS", 0.0)
    return tmp_path / "cache"


def faster(monkeypatch: pytest.MonkeyPatch, ratio: Sequence[float]) -> list[int]:
    """The clock says that the second program takes ``ratio`` of the others' time, in each half of the calls. Gives a
    list to which the number of programs of each trial is added."""
    trials: list[int] = []

    def timing(runners: Sequence[NativeRunner], _: Sequence[np.ndarray]) -> list[np.ndarray]:
        trials.append(len(runners))
        usual = [np.full((2, len(runner.program.costs)), 1000.0) for runner in runners]
        usual[1] *= np.array(ratio)[:, None]
        return usual

    monkeypatch.setattr(autotune, "_time", timing)
    return trials


def region_of(fetches: list[sg.Tensor], feeds: Sequence[sg.Tensor]) -> Region:
    types = {x: TensorType(x.shape, x.dtype) for x in feeds}
    return cut(fetches[0].op.graph, fetches, types)


def product_of(exe: sg.Executable) -> Contraction:
    (product,) = (product for step in exe._programs.native().program.products for product in step)
    return product


def layer(m: int = 48, k: int = 64, n: int = 80) -> tuple[list[sg.Tensor], sg.Tensor, list[np.ndarray]]:
    """A product with an epilogue: feeds, result, arrays."""
    x, w, b = sg.placeholder((m, k)), sg.placeholder((k, n)), sg.placeholder((n,))
    rng = np.random.default_rng(m + k + n)
    arrays = [rng.standard_normal(each.shape).astype(np.float32) for each in (x, w, b)]
    return [x, w, b], sg.nn.gelu(x @ w + b), arrays


# -- blockings ------------------------------------------------------------------------------------------------------

Shapes = tuple[tuple[int, ...], tuple[int, ...]]
PRODUCTS: dict[str, tuple[Shapes, Callable[[sg.Tensor, sg.Tensor], sg.Tensor]]] = {
    "whole": (((64, 32), (32, 64)), lambda a, b: a @ b),
    "ragged": (((33, 77), (77, 129)), lambda a, b: a @ b),
    "tiny": (((2, 3), (3, 5)), lambda a, b: a @ b),
    "deep": (((17, 2100), (2100, 40)), lambda a, b: a @ b),
    "A transposed": (((50, 40), (50, 70)), lambda a, b: a.T @ b),
    "B transposed": (((40, 50), (70, 50)), lambda a, b: a @ b.T),
    "both transposed": (((50, 37), (70, 50)), lambda a, b: a.T @ b.T),
    "a slice": (((60, 50), (40, 90)), lambda a, b: a[3:50, 5:45] @ b[:, 7:80]),
    "every second": (((60, 80), (40, 90)), lambda a, b: a[::2, ::2] @ b[:, ::2]),
    "a batch": (((5, 19, 40), (5, 40, 33)), lambda a, b: a @ b),
    "a batch of one B": (((5, 19, 40), (40, 33)), lambda a, b: a @ b),
    "epilogue": (((45, 64), (64, 51)), lambda a, b: sg.nn.gelu(a @ b) * 2.0),
    "large": (((300, 300), (300, 310)), lambda a, b: sg.tanh(a @ b)),
}


@pytest.mark.parametrize(("target", "name", "dtype"), every_pair(HERE, list(PRODUCTS), ["float32", "float64", "int32"]))
def test_every_blocking_gives_the_same_bits(
    g: sg.Graph, monkeypatch: pytest.MonkeyPatch, target: str, name: str, dtype: str
) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    shapes, declare = PRODUCTS[name]
    if dtype == "int32" and name in ("epilogue", "large"):
        pytest.skip("a function of floats")
    feeds = [sg.placeholder(shape, dtype) for shape in shapes]
    rng = np.random.default_rng(len(name))
    arrays = [(9 * rng.standard_normal(shape)).astype(dtype) for shape in shapes]
    fetched = declare(*feeds)
    sess = sg.Session(g, num_threads=2)
    region, options = region_of([fetched], feeds), replace(CompileOptions.from_environment(), workers=2)
    (product,) = (product for step in compile_region(region, options).products for product in step)
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    (expected,) = sg.Session(g).compile([fetched], feeds)(*arrays)
    monkeypatch.setenv("STATICGRAD_BACKEND", "compiled")
    (usual,) = NativeRunner(binary(region, options), sess.store).run(arrays)
    cancelled = max(1e-3, 1e-5 * np.abs(expected).max(initial=0))
    np.testing.assert_allclose(usual, expected, rtol=1e-4, atol=cancelled)
    several = blockings(product, options.target)
    assert len(several) > 1 or name == "tiny" or dtype == "int32"
    for blocking in several:
        forced = autotune.with_blockings(options, {product: blocking})
        (result,) = NativeRunner(binary(region, forced), sess.store).run(arrays)
        np.testing.assert_array_equal(result, usual, err_msg=str(blocking))


def test_there_are_no_blockings_of_nothing_nor_of_dot_products() -> None:
    def product(m: int, n: int, k: int) -> Contraction:
        return Contraction(F32, (), m, n, k, (k, 1), (n, 1), (n, 1))

    for m, n, k in ((0, 8, 8), (8, 0, 8), (8, 8, 0), (64, 1, 256)):
        assert blockings(product(m, n, k), AVX2) == ()
    several = blockings(product(64, 64, 64), AVX2)
    assert 1 < len(several) == len(set(several))


def test_the_usual_blocking_comes_first(g: sg.Graph) -> None:
    feeds, y, _ = layer()
    region, options = region_of([y], feeds), CompileOptions.from_environment()
    program = compile_region(region, options)
    (product,) = (product for step in program.products for product in step)
    usual, *others = blockings(product, options.target)
    texts = [
        compile_region(region, autotune.with_blockings(options, {product: blocking})).llvm_text
        for blocking in (usual, *others)
    ]
    assert texts[0] == program.llvm_text
    assert len(set(texts)) == len(texts)  # a forced choice changes the code


def test_a_forced_tile_is_the_one_that_is_emitted(g: sg.Graph) -> None:
    feeds, y, _ = layer()
    region, options = region_of([y], feeds), CompileOptions.from_environment()
    (product,) = (product for step in compile_region(region, options).products for product in step)
    blocking = Blocking(False, 3, 2, False, True)
    forced = autotune.with_blockings(options, {product: blocking})
    text = compile_region(region, forced).llvm_text
    assert "tile.float32.3x2" in text
    plan = plan_of(replace(product, blocking=blocking), options.target)
    assert plan.b_bytes >= 4 * product.k * product.n  # B is packed


# -- choosing -------------------------------------------------------------------------------------------------------


def test_the_fastest_is_chosen_and_remembered(g: sg.Graph, monkeypatch: pytest.MonkeyPatch, fresh: Path) -> None:
    trials = faster(monkeypatch, (0.9, 0.9))
    feeds, y, arrays = layer()
    sess = sg.Session(g, num_threads=1)
    plain = sess.compile(y, feeds)
    _, chosen, *_ = blockings(product_of(plain), CompileOptions.from_environment().target)
    exe = sess.compile(y, feeds, autotune=True)
    assert exe.text("llvm") != plain.text("llvm")
    np.testing.assert_array_equal(exe(*arrays), plain(*arrays))
    assert list(autotune._chosen.values()) == [chosen]
    sg.Session(g, num_threads=1).compile(y, feeds, autotune=True)
    assert len(trials) == 1  # this process knows
    autotune._chosen.clear()
    again = sg.Session(g, num_threads=1).compile(y, feeds, autotune=True)
    assert len(trials) == 1  # the cache knows
    assert again.text("llvm") == exe.text("llvm")
    autotune._chosen.clear()
    cache.clear()
    sg.Session(g, num_threads=1).compile(y, feeds, autotune=True)
    assert len(trials) == 2


@pytest.mark.parametrize("ratio", [(0.96, 0.96), (0.5, 1.0), (1.0, 0.5), (1.1, 1.1)])
def test_what_is_hardly_faster_or_only_once_is_not_chosen(
    g: sg.Graph, monkeypatch: pytest.MonkeyPatch, ratio: tuple[float, float]
) -> None:
    trials = faster(monkeypatch, ratio)
    feeds, y, _ = layer()
    sess = sg.Session(g, num_threads=1)
    exe = sess.compile(y, feeds, autotune=True)
    assert exe.text("llvm") == sess.compile(y, feeds).text("llvm")
    sg.Session(g, num_threads=1).compile(y, feeds, autotune=True)
    assert len(trials) == 1  # that nothing is better is remembered, too


def test_without_autotune_nothing_is_tried_or_looked_up(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = faster(monkeypatch, (0.5, 0.5))
    feeds, y, _ = layer()
    sess = sg.Session(g, num_threads=1)
    before = sess.compile(y, feeds).text("llvm")
    assert not trials
    assert sess.compile(y, feeds, autotune=True).text("llvm") != before
    assert sess.compile(y, feeds).text("llvm") == before
    assert sg.Session(g, num_threads=1).compile(y, feeds).text("llvm") == before


@pytest.mark.parametrize(
    "table", [None, 3, (1, 2, 3, 4, 5), (False, 1000, 1000, False, False), (False, 0, 0, False, True), ("x",) * 5]
)
def test_a_table_that_makes_no_sense_is_a_miss(g: sg.Graph, monkeypatch: pytest.MonkeyPatch, table: Any) -> None:
    trials = faster(monkeypatch, (0.9, 0.9))
    feeds, y, _ = layer()
    expected = sg.Session(g, num_threads=1).compile(y, feeds, autotune=True).text("llvm")
    names = next(iter(autotune._chosen))
    autotune._chosen.clear()
    cache.save(cache.key_of(*names), table)
    assert sg.Session(g, num_threads=1).compile(y, feeds, autotune=True).text("llvm") == expected
    assert len(trials) == 2


def test_a_damaged_entry_is_a_miss(g: sg.Graph, monkeypatch: pytest.MonkeyPatch, fresh: Path) -> None:
    trials = faster(monkeypatch, (0.9, 0.9))
    feeds, y, _ = layer()
    expected = sg.Session(g, num_threads=1).compile(y, feeds, autotune=True).text("llvm")
    autotune._chosen.clear()
    for path in fresh.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert sg.Session(g, num_threads=1).compile(y, feeds, autotune=True).text("llvm") == expected
    assert len(trials) == 2


def test_another_product_number_of_threads_or_target_has_choices_of_its_own() -> None:
    options = CompileOptions(AVX2)
    product = Contraction(F32, (), 8, 8, 8, (8, 1), (8, 1), (8, 1))
    others = (
        autotune._names(Contraction(F32, (), 8, 8, 9, (9, 1), (8, 1), (8, 1)), options),
        autotune._names(product, CompileOptions(AVX2, workers=2)),
        autotune._names(product, CompileOptions(TARGETS["generic"])),
    )
    chosen = autotune.with_blockings(options, {product: Blocking(False, 2, 1, False, False)})
    assert autotune._names(product, chosen) == autotune._names(product, options)
    assert len({autotune._names(product, options), *others}) == 4
    assert chosen.blockings == ((product, Blocking(False, 2, 1, False, False)),)


def test_products_in_one_step_take_turns() -> None:
    first, second, third = (Contraction(F32, (), m, 8, 8, (8, 1), (8, 1), (8, 1)) for m in (1, 2, 3))
    u, v, w = (Blocking(False, rows, 1, False, False) for rows in (1, 2, 3))
    tries = {first: (u, v, w), second: (u, v), third: (u, w)}
    assert autotune._rounds(tries, [(first,), (second,), (third, third)]) == [
        {first: v, second: v, third: w}, {first: w},
    ]  # fmt: skip
    assert autotune._rounds(tries, [(first, second), (third,), (second,)]) == [
        {first: v, third: w}, {first: w}, {second: v},
    ]  # fmt: skip


# -- programs -------------------------------------------------------------------------------------------------------


def network(g: sg.Graph) -> tuple[sg.Session, list[Any], list[sg.Tensor], list[np.ndarray], sg.Tensor]:
    """A step of training with labels, random numbers and state."""
    x, t = sg.placeholder((24, 40)), sg.placeholder((24,), sg.int64)
    rng = np.random.default_rng(1)
    w = sg.Variable(rng.standard_normal((40, 32)).astype(np.float32), name="w")
    v = sg.Variable(rng.standard_normal((32, 10)).astype(np.float32), name="v")
    loss = sg.nn.cross_entropy(sg.nn.relu((x + sg.random.uniform((24, 40))) @ w) @ v, t)
    train = sg.optim.SGD(lr=0.1, momentum=0.9).minimize(loss)
    return (
        sg.Session(g, num_threads=2), [loss, train], [x, t],
        [rng.standard_normal((24, 40)).astype(np.float32), np.arange(24) % 10], w,
    )  # fmt: skip


def test_training_goes_on_as_without_it(g: sg.Graph) -> None:
    sess, fetches, feeds, arrays, w = network(g)
    plain = sg.Session(g, num_threads=2)
    before = sess.get(w)
    tuned, usual = sess.compile(fetches, feeds, autotune=True), plain.compile(fetches, feeds)
    assert autotune._chosen  # measured in earnest
    np.testing.assert_array_equal(sess.get(w), before)
    for _ in range(3):
        np.testing.assert_array_equal(tuned(*arrays)[0], usual(*arrays)[0])
    np.testing.assert_array_equal(sess.get(w), plain.get(w))
    assert tuned.profile(*arrays).kernels


def test_sizes_bound_by_the_call_and_empty_ones(g: sg.Graph) -> None:
    x, w = sg.placeholder((None, 20)), sg.placeholder((20, 30))
    exe = sg.Session(g, num_threads=1).compile(x @ w, [x, w], autotune=True)
    assert not autotune._chosen
    rng = np.random.default_rng(0)
    b = rng.standard_normal((20, 30)).astype(np.float32)
    for rows in (7, 0, 1, 7):
        a = rng.standard_normal((rows, 20)).astype(np.float32)
        np.testing.assert_allclose(exe(a, b), a @ b, rtol=1e-4, atol=1e-4)
    assert autotune._chosen


def test_programs_that_were_only_tried_are_not_kept(g: sg.Graph, fresh: Path) -> None:
    feeds, y, _ = layer()
    sess = sg.Session(g, num_threads=1)
    sess.compile(feeds[0] + 1.0, feeds[:1])  # what all programs of a process share may be kept with the first
    before = len(cache.entries(str(fresh)))
    sess.compile(y, feeds, autotune=True)
    assert len(cache.entries(str(fresh))) - before == 2  # the program that was chosen, and the choice


def test_products_inside_of_loops_are_tried(g: sg.Graph) -> None:
    xs, w = sg.placeholder((6, 12, 16)), sg.placeholder((16, 16))
    h, _ = sg.scan(lambda h, x: (sg.tanh(h @ w + x), h), sg.zeros((12, 16)), xs)
    exe = sg.Session(g, num_threads=1).compile(h, [xs, w], autotune=True)
    assert autotune._chosen
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(x.shape).astype(np.float32) for x in (xs, w)]
    plain = sg.Session(g, num_threads=1).compile(h, [xs, w])
    np.testing.assert_array_equal(exe(*arrays), plain(*arrays))


def test_python_functions_are_not_called_on_made_up_feeds(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = faster(monkeypatch, (0.5, 0.5))
    feeds, y, arrays = layer()
    seen: list[np.ndarray] = []
    (z,) = sg.py_call(lambda a: seen.append(a) or a, [y], [(np.float32, y.shape)])
    exe = sg.Session(g, num_threads=1).compile(z, feeds, autotune=True)
    assert not seen
    assert not trials
    exe(*arrays)
    assert len(seen) == 1


def test_a_program_that_fails_on_made_up_feeds_is_compiled_as_without(g: sg.Graph) -> None:
    feeds, y, arrays = layer()
    check = sg.assert_
    must = check(sg.all(feeds[0] == 1.0), "ones")
    with sg.control_dependencies([must]):
        z = y + 1.0
    sess = sg.Session(g, num_threads=1)
    exe = sess.compile(z, feeds, autotune=True)
    assert not autotune._chosen
    assert exe.text("llvm") == sess.compile(z, feeds).text("llvm")
    with pytest.raises(sg.StaticGradError, match="ones"):
        exe(*arrays)
    exe(np.ones_like(arrays[0]), *arrays[1:])


def test_a_budget_that_a_blocking_exceeds_is_met_without_it(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds, y, arrays = layer()
    sess = sg.Session(g, num_threads=1)
    plain = sess.compile(y, feeds)
    product = product_of(plain)
    options = CompileOptions.from_environment()

    def scratch_with(blocking: Blocking | None) -> int:
        return plan_kernel(replace(product, blocking=blocking), options.target).scratch_bytes(1)

    more = [b for b in blockings(product, options.target) if scratch_with(b) > scratch_with(None)]
    assert more
    monkeypatch.setattr(autotune, "_fastest", lambda *_: {product: more[0]})
    exe = sess.compile(y, feeds, memory_budget=plain.memory.arena_bytes, autotune=True)
    assert exe.memory.arena_bytes <= plain.memory.arena_bytes
    np.testing.assert_array_equal(exe(*arrays), plain(*arrays))


def test_the_reference_backend_has_nothing_to_tune(g: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    feeds, y, arrays = layer()
    sg.Session(g).compile(y, feeds, autotune=True)(*arrays)
    assert not autotune._chosen
