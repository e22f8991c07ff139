"""``STATICGRAD_VERIFY=2``: programs run step by step beside their reference. Right ones run as ever, faults that are
planted in a tile, in what rewrites steps and in a live interval are named with the kernel and the user's line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from support.random_dtypes import drawn
from support.random_graphs import random_graph
from support.sampling import relative_error
from support.selection import rotating, slow
from support.targets import CURRENT, EVERY

import staticgrad as sg
from staticgrad.compiler import pipeline
from staticgrad.compiler.kernels.matrix import Contraction
from staticgrad.compiler.kernels.nest import Compute, Nest
from staticgrad.compiler.kernels.reference import Noise
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.memory import plan as memory_plan
from staticgrad.compiler.plans.contraction import plan as contraction_plan
from staticgrad.compiler.plans.contraction.plan import ContractionPlan
from staticgrad.compiler.program.memories import Temp
from staticgrad.compiler.program.step import Step
from staticgrad.compiler.regions.verify import VerifyError
from staticgrad.graph.graph import Tensor
from staticgrad.runtime.running.stepwise import first_wrong

pytestmark = pytest.mark.usefixtures("g")
RNG = np.random.default_rng(0)
COUNT = int(os.environ.pop("STATICGRAD_VERIFIED_PROGRAMS", "800"))  # drawn for each target


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_VERIFY", "2")


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


# -- right programs -------------------------------------------------------------------------------------------------


def test_training_runs_as_ever_when_steps_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    x, labels = sg.placeholder((16, 1, 12, 12)), sg.placeholder((16,), sg.int64)
    net = sg.nn.Sequential(
        sg.nn.Conv2d(1, 4, 3), sg.nn.ReLU(), sg.nn.MaxPool2d(2), sg.nn.Flatten(), sg.nn.Linear(100, 5)
    )
    loss = sg.nn.cross_entropy(net(x), labels)
    train = sg.optim.Adam(lr=1e-2).minimize(loss)
    feeds = {x: normal(16, 1, 12, 12), labels: RNG.integers(0, 5, 16)}
    found = []
    for level in ("2", "0"):
        monkeypatch.setenv("STATICGRAD_VERIFY", level)
        with sg.Session(seed=0) as session:
            found.append([float(session.run([loss, train], feeds)[0]) for _ in range(3)])
    assert found[0] == found[1]


def test_loops_branches_and_routines_are_verified() -> None:
    x, w = sg.placeholder((6, 4, 8)), sg.placeholder((8, 8))
    last, hs = sg.scan(lambda h, row: (sg.tanh(row @ w + h @ w.T),) * 2, sg.zeros((4, 8)), x)
    root = sg.while_loop(
        lambda y: sg.max(sg.abs(y * y - 2.0)) > 1e-5, lambda y: 0.5 * (y + 2.0 / y), sg.ones(3), max_steps=9
    )
    chosen = sg.cond(sg.sum(last) > 0, lambda: last @ w, lambda: sg.exp(last))
    fetches = [hs, root, chosen, sg.sort(x), sg.linalg.qr(w)[1], *sg.gradients(sg.sum(hs), [w])]
    assert len(sg.Session().run(fetches, {x: normal(6, 4, 8), w: 0.3 * normal(8, 8)})) == len(fetches)


def test_tapes_that_consume_and_packed_weights_are_verified() -> None:
    x = sg.placeholder((4, 64))
    net = sg.nn.Sequential(sg.nn.Linear(64, 64), sg.nn.GELU(), sg.nn.Linear(64, 3))
    session = sg.Session(seed=0)
    y = net(x)
    for _ in range(2):
        assert session.run(y, {x: normal(4, 64)}).shape == (4, 3)
    loss = sg.sum(y * y)
    with session.forward([loss], {x: normal(4, 64)}) as tape:
        tape.backward(loss)
        assert np.isfinite(tape[loss])


@pytest.mark.parametrize("dtype", [sg.float32, sg.float64])
def test_random_numbers_are_verified(dtype: np.dtype) -> None:
    plain, own = sg.random.normal((5, 7), dtype=dtype), sg.random.uniform((40,), dtype=dtype, seed=2**40 + 1)
    _, turns = sg.scan(lambda c, _: (c, sg.random.uniform((3, 2), dtype=dtype)), 0.0, None, length=4)
    fetches = [plain, own, turns, sg.random.permutation(9), sg.random.bernoulli(0.5, shape=(8,))]
    found = sg.Session(seed=3).run(fetches)
    assert [x.shape for x in found] == [(5, 7), (40,), (4, 3, 2), (9,), (8,)]


def run_drawn(seed: int) -> None:
    """A drawn program of float32, float64 or a short float, or one over every dtype."""
    if seed % 4 == 3:
        program = drawn(seed)
        with sg.Session(program.graph) as session:
            session.compile(program.results, program.placeholders)(*program.feeds)
        return
    advanced = seed % 3 == 0
    dtype = sg.float64 if advanced else (sg.float32, sg.float64, sg.float16 if seed % 8 == 2 else sg.bfloat16)[seed % 4]
    case = random_graph(seed, advanced=advanced, dtype=dtype)
    with case.graph:
        slopes = sg.gradients(case.loss, case.leaves, unconnected_gradients="zero") if seed % 5 == 0 else []
    with np.errstate(all="ignore"), sg.Session(case.graph) as session:
        fetches = [*case.results, *slopes, *([] if case.train is None else [case.train])]
        session.run(fetches, case.feeds)


@pytest.mark.filterwarnings("ignore::staticgrad.errors.PromotionWarning")
@pytest.mark.parametrize(
    ("start", "target"),
    [(0, CURRENT), (168, CURRENT), *rotating([(at, name) for name in EVERY for at in range(8, COUNT, 8)], 200)],
)
def test_no_right_program_is_refused(start: int, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    for seed in range(start, start + 8):
        run_drawn(seed)


@pytest.mark.parametrize("target", EVERY)
def test_products_of_feeds_are_allowed_the_rounding_of_their_terms(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a small target one of 160,000 elements was refused whose trials all were nearly exact."""
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    x, w = sg.placeholder((64, 64)), sg.placeholder((64, 64))
    y = x @ w
    with sg.Session() as session:
        for _ in range(40):
            session.run(y, {x: normal(64, 64), w: normal(64, 64)})


def test_the_noise_of_a_sum_that_cancels_is_that_of_its_largest_term() -> None:
    """That of few terms may cancel as they do: once in some thousand sums, which were refused then."""
    found = Noise(1).of_sum(np.zeros(10_000), np.full(10_000, 0.01))
    assert 1e-18 < np.std(found) < 1e-16
    assert (found != 0).all()


@pytest.mark.parametrize("n", [2, 4, 40])
def test_products_of_flipped_matrices_are_read_where_they_lie(n: int) -> None:
    """A small product, whose elements are computed one by one, was checked with what lies before its operand."""
    x, w = normal(n, n), normal(n, n)
    given, weight = sg.placeholder((n, n)), sg.placeholder((n, n))
    y = sg.tanh(given)
    results = [
        y[::-1] @ weight,
        weight @ y[:, ::-1],
        y[::-1, ::-1].mT @ weight,
        (y[::-1] @ weight) @ (weight @ y[::-1]),
    ]
    with sg.Session() as session:
        got = session.run(results, {given: x, weight: w})
    y = np.tanh(x)
    for a, b in zip(
        got, [y[::-1] @ w, w @ y[:, ::-1], y[::-1, ::-1].T @ w, (y[::-1] @ w) @ (w @ y[::-1])], strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


# -- planted faults -------------------------------------------------------------------------------------------------


def product() -> tuple[Tensor, dict[Tensor, np.ndarray]]:
    a, b = sg.placeholder((37, 41)), sg.placeholder((41, 43))
    y = sg.tanh(a @ b)  # the line that is named
    return y, {a: normal(37, 41), b: normal(41, 43)}


def test_a_wrong_tile_is_named_with_its_kernel_and_line(monkeypatch: pytest.MonkeyPatch) -> None:
    right = contraction_plan._make_plan

    def without_the_last_term(kernel: Contraction, target: Target) -> ContractionPlan:
        plan = right(kernel, target)
        k = plan.way.k - 1
        return replace(plan, way=replace(plan.way, k=k), block_depth=k, depth_block=k)

    monkeypatch.setattr(contraction_plan, "_make_plan", without_the_last_term)
    y, feeds = product()
    with pytest.raises(VerifyError, match=r"contraction dot_tanh: element .* by the reference") as error:
        sg.Session().run(y, feeds)
    assert "37x41 · 41x43" in str(error.value)
    assert "y = sg.tanh(a @ b)" in str(error.value)


@pytest.mark.parametrize("dtype", [sg.float32, sg.float64, sg.float16, sg.bfloat16])
def test_a_wrong_fusion_is_named_with_its_ops_and_line(dtype: np.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of 16-bit floats below 1 were once compared as the integers 0."""
    right = pipeline.inline

    def swapping(steps: Sequence[Step], target: Target) -> list[Step]:
        """Exchanges the operands of subtractions."""
        found = right(steps, target)
        for step in found:
            if isinstance(step.kernel, Nest):
                body = tuple(
                    replace(i, args=i.args[::-1]) if isinstance(i, Compute) and i.op == "subtract" else i
                    for i in step.kernel.body
                )
                step.kernel = replace(step.kernel, body=body)
        return found

    monkeypatch.setattr(pipeline, "inline", swapping)
    x, y = sg.placeholder((50,), dtype), sg.placeholder((50,), dtype)
    z = sg.tanh(x - y)  # the line that is named
    with pytest.raises(VerifyError, match=r"subtract_tanh: '(tanh|astype_4)' .* by the graph") as error:
        sg.Session().run(z, {x: normal(50).astype(dtype), y: normal(50).astype(dtype)})
    assert "z = sg.tanh(x - y)" in str(error.value)


def test_a_nan_of_a_short_float_and_an_integer_far_off_are_judged() -> None:
    nan, off = np.array([np.nan, 0.25], sg.bfloat16), np.array([np.nan, 0.5], sg.bfloat16)
    assert first_wrong(nan, [nan, nan, nan], 1) is None
    assert first_wrong(off, [nan, nan, nan], 1) == 1
    far, near = np.array([-(2**63), 1]), np.array([2**63 - 1, 1])
    assert first_wrong(near, [near, near, near], 1) is None
    assert first_wrong(far, [near, near, near], 1) == 0
    assert first_wrong(far, [near, far, near], 1) is None


def test_a_wrong_live_interval_is_named_with_both_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    right = memory_plan.live_ranges

    def ending_early(steps: Sequence[Step]) -> dict[Temp, tuple[int, int]]:
        return {temp: (first, first + 1) for temp, (first, _) in right(steps).items()}

    monkeypatch.setattr(memory_plan, "live_ranges", ending_early)
    monkeypatch.setattr(memory_plan, "check_steps", lambda *_, **__: None)
    x, w = sg.placeholder((64, 64)), sg.placeholder((64, 64))
    first = x @ w
    second = w @ x
    third = first @ second
    with pytest.raises(VerifyError, match=r"it changed byte \d+ of buffer .*a live interval or an address is wrong"):
        sg.Session().run([third], {x: normal(64, 64), w: normal(64, 64)})


FAULTS = (  # of machine code: what stands in a line, and what is written in its place
    (" = fadd ", " = fsub "), (" = fsub ", " = fadd "), (" = fmul ", " = fadd "), (" = fdiv ", " = fmul "),
    (" = call float @llvm.maxnum", " = call float @llvm.minnum"), (" = fcmp ogt ", " = fcmp olt "),
    (" = fcmp olt ", " = fcmp ogt "), ("i1 true", "i1 false"),
)  # fmt: skip


def with_a_fault(texts: Sequence[str], rng: np.random.Generator) -> tuple[str, ...]:
    """The modules of a program, one line of one of which does something else."""
    lines = [text.split("\n") for text in texts]
    places = [
        (module, number, fault)
        for module, own in enumerate(lines)
        for number, line in enumerate(own)
        for fault in FAULTS
        if fault[0] in line
    ]
    if places:
        module, number, (right, wrong) = places[int(rng.integers(len(places)))]
        lines[module][number] = lines[module][number].replace(right, wrong, 1)
    return tuple("\n".join(own) for own in lines)


@pytest.mark.parametrize(("first", "found"), [(0, 6), slow(100, 50)])
def test_each_fault_of_machine_code_that_reaches_a_result_is_found(
    first: int, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line of a drawn program is changed. Either the run is refused, or the change makes no difference."""
    right, rng = pipeline.emit_entry, np.random.default_rng(first)
    seen, seed = 0, first
    while seen < found:
        assert seed < first + 6 * found, f"{seen} faults of {seed - first} had an effect"
        case = random_graph(seed, dtype=sg.float32 if seed % 2 else sg.float64)
        with np.errstate(all="ignore"), monkeypatch.context() as patch:
            patch.setenv("STATICGRAD_BACKEND", "reference")
            with sg.Session(case.graph) as session:
                wanted = session.run(case.results, case.feeds)
            patch.setenv("STATICGRAD_BACKEND", "compiled")
            patch.setenv("STATICGRAD_CACHE", "0")
            patch.setattr(
                pipeline, "emit_entry",
                lambda *args, **how: replace(entry := right(*args, **how), texts=with_a_fault(entry.texts, rng)),
            )  # fmt: skip
            with sg.Session(case.graph) as session:
                try:
                    got = session.run(case.results, case.feeds)
                except VerifyError:
                    seen += 1
                else:
                    for x, y in zip(got, wanted, strict=True):
                        assert relative_error(x, y, floor=1e-3) < 1e-3, f"seed {seed}: a fault that was not seen"
        seed += 1
