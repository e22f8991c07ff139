"""Updates of few rows of a table: the same bits as updates of the whole, without memory of its size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.targets import EVERY

import staticgrad as sg

Array = np.ndarray[Any, np.dtype[Any]]

ROWS, WIDTH = 3000, 8

OPTIMIZERS: tuple[Callable[[], sg.optim.Optimizer], ...] = (
    lambda: sg.optim.SGD(lr=0.1),
    lambda: sg.optim.SGD(lr=0.1, maximize=True),
    lambda: sg.optim.SGD(lr=sg.optim.schedules.exponential(0.5, gamma=0.9)),
    lambda: sg.optim.Adagrad(lr=0.1, lr_decay=0.01, initial_accumulator_value=0.1),
    lambda: sg.optim.SGD(lr=0.1, momentum=0.9, nesterov=True, lazy=True),
    lambda: sg.optim.SGD(lr=0.1, weight_decay=0.1, lazy=True),
    lambda: sg.optim.Adam(lr=0.1, amsgrad=True, weight_decay=0.1, lazy=True),
    lambda: sg.optim.AdamW(lr=0.1, lazy=True),
    lambda: sg.optim.RMSprop(lr=0.1, momentum=0.9, centered=True, lazy=True),
    lambda: sg.optim.Lion(lr=0.1, weight_decay=0.1, lazy=True),
)


CLIPS: tuple[Callable[[Any], Any], ...] = (
    lambda gradient: gradient,
    lambda gradient: sg.clip(gradient, -0.25, 0.5),
    lambda gradient: sg.maximum(sg.minimum(gradient, 0.25), -0.5),
    lambda gradient: sg.optim.clip_by_global_norm([gradient], 1.0)[0],
)


class Training:
    """Steps of an optimizer on a table of which a drawn program reads some rows, in number open or known."""

    def __init__(self, seed: int, optimizer: Callable[[], sg.optim.Optimizer]) -> None:
        draw = np.random.default_rng(seed)
        self.dtype = (sg.float32, sg.float64, sg.float16, sg.bfloat16)[int(draw.integers(4))]
        self.clip = int(draw.integers(len(CLIPS)))
        tail = ((), (WIDTH,), (3, 5), (70,))[int(draw.integers(4))]
        rows = 4 * ROWS if tail else 80_000
        self.graph = sg.Graph()
        with self.graph:
            table = sg.Variable(draw.normal(size=(rows, *tail)), dtype=self.dtype, name="table")
            self.feeds, self.draws = [], []
            loss: Any = 0.0
            for number in range(int(draw.integers(1, 4))):
                shape = tuple(int(n) for n in draw.integers(1, 12, size=int(draw.integers(1, 3))))
                declared = (None, *shape[1:]) if draw.integers(2) else shape
                ids = sg.placeholder(declared, (sg.int64, sg.int32)[int(draw.integers(2))], name=f"ids{number}")
                low, high = (-40, 40) if draw.integers(2) else (0, 12)
                read = table[ids] if low < 0 or len(tail) != 1 or draw.integers(2) else sg.nn.embedding(ids, table)
                self.feeds.append(ids)
                self.draws.append((declared, low, high))
                loss = loss + sg.sum(sg.sin(read) if draw.integers(2) else read * read * 0.5)
            (gradient,) = sg.gradients(loss, [table])
            train = optimizer().apply_gradients([(CLIPS[self.clip](gradient), table)])
        self.session = sg.Session(self.graph)
        self.step = self.session.compile([loss, train], self.feeds)
        self.random = np.random.default_rng(seed + 1)

    def run(self, steps: int = 4) -> list[Array]:
        """The losses, and all variables after the steps."""
        losses = []
        for _ in range(steps):
            ids = []
            for x, (shape, low, high) in zip(self.feeds, self.draws, strict=True):
                known = tuple(int(self.random.integers(1, 12)) if n is None else n for n in shape)
                ids.append(self.random.integers(low, high, size=known).astype(x.dtype))
            losses.append(self.step(*ids)[0])
        return [np.array(losses), *(self.session.get(x) for x in self.graph.variables.values())]

    @property
    def elements(self) -> int:
        """Those of the table."""
        return int(self.graph.variables["table"].size)

    @property
    def tolerance(self) -> float:
        """Of what is computed in another order, relative and absolute."""
        return {sg.float64: 1e-12, sg.float32: 2e-5, sg.float16: 2e-2, sg.bfloat16: 1e-1}[self.dtype]


def close(a: list[Array], b: list[Array], tolerance: float) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("seed", range(64))
def test_rows_and_whole_tables_are_updated_to_the_same_bits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    target = EVERY[seed % len(EVERY)]
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    optimizer = OPTIMIZERS[seed % len(OPTIMIZERS)]
    by_rows = Training(seed, optimizer)
    found = by_rows.run()
    assert "assign_rows" in by_rows.step.text("graph")
    assert by_rows.step.memory.arena_bytes < 2 * by_rows.elements
    monkeypatch.setenv("STATICGRAD_DISABLE", "row_updates")
    whole = Training(seed, optimizer)
    wanted = whole.run()
    assert "assign_rows" not in whole.step.text("graph")
    close(found[:1], wanted[:1], whole.tolerance)  # whose terms are added up in other kernels, as are those of norms
    if CLIPS[whole.clip] is CLIPS[-1]:
        close(found, wanted, whole.tolerance)
    else:
        for x, y in zip(found[1:], wanted[1:], strict=True):
            assert x.tobytes() == y.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(64, 400))
def test_many_drawn_tables(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    test_rows_and_whole_tables_are_updated_to_the_same_bits(seed, monkeypatch)


@pytest.mark.parametrize("seed", range(6))
def test_the_interpreter_agrees(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = OPTIMIZERS[2 * seed % len(OPTIMIZERS)]
    by_rows = Training(seed, optimizer)
    found = by_rows.run()
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    close(found, Training(seed, optimizer).run(), by_rows.tolerance)


def declared(read: Callable[[sg.Tensor, sg.Tensor], Any]) -> tuple[sg.Session, sg.Tensor, sg.Tensor, Any]:
    table = sg.Variable(np.linspace(0, 1, ROWS * WIDTH).reshape(ROWS, WIDTH), dtype=sg.float64, name="table")
    ids = sg.placeholder((6,), sg.int64, name="ids")
    fetches = read(table, ids)
    return sg.Session(table.graph), table, ids, fetches


def graph_text(declare: Callable[[sg.Tensor, sg.Tensor], Any]) -> str:
    with sg.Graph():
        session, _, ids, fetches = declared(declare)
        text: str = session.compile(fetches, [ids]).text("graph")
        return text


def test_an_index_out_of_range_leaves_the_table_as_it_was(g: sg.Graph) -> None:
    session, table, ids, train = declared(lambda t, i: sg.optim.Adagrad(lr=0.5).minimize(sg.sum(t[i] ** 2)))
    before = session.get(table)
    with pytest.raises(sg.BoundsError, match="index 3000 is out of range"):
        session.run(train, {ids: [0, 1, 2, 3, ROWS, 5]})
    assert session.get(table).tobytes() == before.tobytes()
    session.run(train, {ids: [0, -1, 0, 1, 2, 2]})
    changed = np.flatnonzero((session.get(table) != before).any(1))
    np.testing.assert_array_equal(changed, [0, 1, 2, ROWS - 1])


def test_a_check_after_the_update_leaves_the_table_as_it_was(g: sg.Graph) -> None:
    def declare(table: sg.Tensor, ids: sg.Tensor) -> Any:
        loss = sg.sum(table[ids] ** 2)
        train = sg.optim.SGD(lr=0.5).minimize(loss)
        return [train, sg.assert_(loss < 1.0, "large")]

    session, table, ids, fetches = declared(declare)
    before = session.get(table)
    with pytest.raises(sg.StaticGradError, match="large"):
        session.run(fetches, {ids: [2999] * 6})
    assert session.get(table).tobytes() == before.tobytes()


def test_reads_in_the_same_run_see_the_table_before_the_update(g: sg.Graph) -> None:
    def declare(table: sg.Tensor, ids: sg.Tensor) -> Any:
        return [sg.optim.SGD(lr=0.5).minimize(sg.sum(table[ids] ** 2)), table[:3], sg.sum(table)]

    session, table, ids, fetches = declared(declare)
    before = session.get(table)
    _, first, total = session.run(fetches, {ids: [0, 1, 2, 0, 1, 2]})
    assert first.tobytes() == before[:3].tobytes()
    np.testing.assert_allclose(total, before.sum(), rtol=1e-12)
    assert (session.get(table)[1:3] != before[1:3]).all()


def test_what_needs_the_whole_gradient_has_it(g: sg.Graph) -> None:
    def declare(table: sg.Tensor, ids: sg.Tensor) -> Any:
        loss = sg.sum(table[ids] ** 2)
        return [sg.optim.SGD(lr=0.5).minimize(loss), *sg.gradients(loss, [table])]

    session, table, ids, fetches = declared(declare)
    before = session.get(table)
    _, gradient = session.run(fetches, {ids: [0, 7, 7, 7, 1, 1]})
    want = np.zeros_like(before)
    np.add.at(want, [0, 7, 7, 7, 1, 1], 2 * before[[0, 7, 7, 7, 1, 1]])
    np.testing.assert_allclose(gradient, want, rtol=1e-14)
    np.testing.assert_allclose(session.get(table), before - 0.5 * want, rtol=1e-14)


def test_norms_and_extremes_of_a_gradient_are_those_of_its_rows(g: sg.Graph) -> None:
    """Also of rows that several indices name, and where no update reads them."""

    def declare(table: sg.Tensor, ids: sg.Tensor) -> Any:
        (gradient,) = sg.gradients(sg.sum((table[ids] - 2) ** 2), [table])
        each = sg.sum(sg.square(gradient), axis=0)
        return [sg.optim.global_norm([gradient]), sg.max(gradient), sg.min(sg.abs(gradient)), each]

    session, table, ids, fetches = declared(declare)
    step = session.compile(fetches, [ids])
    assert step.memory.arena_bytes < ROWS * WIDTH
    want = np.zeros_like(session.get(table))
    named = [0, 7, 7, 7, 1, -1]
    np.add.at(want, named, 2 * (session.get(table)[named] - 2))
    norm, most, least, each = step(named)
    np.testing.assert_allclose(norm, np.linalg.norm(want), rtol=1e-14)
    assert (most, least) == (0, 0)
    np.testing.assert_allclose(each, (want**2).sum(0), rtol=1e-14)


def test_gradients_that_are_clipped_together_are_scaled_by_the_norm_of_all(g: sg.Graph) -> None:
    """Two tables, one of which is read twice, and a matrix."""
    draw = np.random.default_rng(0)
    start = [draw.normal(size=shape) for shape in ((ROWS, WIDTH), (2 * ROWS, WIDTH), (WIDTH, WIDTH))]
    a, b, w = (sg.Variable(x, dtype=sg.float64) for x in start)
    ids, more = sg.placeholder((6,), sg.int64), sg.placeholder((3,), sg.int64)
    loss = sg.sum((a[ids] @ w) ** 2) + sg.sum(b[ids] ** 2) + sg.sum(b[more] ** 3)
    gradients = sg.gradients(loss, [a, b, w])
    clipped = sg.optim.clip_by_global_norm(gradients, 0.5)
    session = sg.Session()
    fed = {ids: [5, 5, 0, 9, 5, -1], more: [0, 0, 77]}
    wanted = session.run(gradients, fed)
    step = session.compile(sg.optim.SGD(lr=1.0).apply_gradients(zip(clipped, [a, b, w], strict=True)), [ids, more])
    assert step.text("graph").count("assign_rows(") == 2
    assert step.memory.arena_bytes < ROWS * WIDTH
    step(*fed.values())
    scale = 0.5 / (np.sqrt(sum((x**2).sum() for x in wanted)) + 1e-6)
    for x, before, gradient in zip((a, b, w), start, wanted, strict=True):
        np.testing.assert_allclose(session.get(x), before - scale * gradient, rtol=1e-12, atol=1e-14)


def test_one_program_serves_a_range_of_numbers_of_indices(g: sg.Graph) -> None:
    table = sg.Variable(np.ones((ROWS, WIDTH)), name="table", dtype=sg.float64)
    ids = sg.placeholder((None,), sg.int64)
    session = sg.Session()
    step = session.compile(sg.optim.Adagrad(lr=0.5).minimize(sg.sum(table[ids] ** 2)), [ids])
    for count in (1, 2, 5, 11, 16):
        before = session.get(table)
        named = np.arange(count) // 2
        step(named)
        changed = np.flatnonzero((session.get(table) != before).any(1))
        np.testing.assert_array_equal(changed, np.unique(named))
    assert session.compile_count == 1
    assert "assign_rows" in step.text("graph")
    assert step.memory.arena_bytes < ROWS * WIDTH


def test_more_indices_than_a_part_of_the_rows_are_a_program_of_the_whole(g: sg.Graph) -> None:
    table = sg.Variable(np.ones((ROWS, WIDTH)), name="table", dtype=sg.float64)
    ids = sg.placeholder((None,), sg.int64)
    session = sg.Session()
    step = session.compile(sg.optim.SGD(lr=0.5).minimize(sg.sum(table[ids])), [ids])
    step(np.zeros(700, np.int64))
    assert "assign_rows" not in step.text("graph")
    assert (session.get(table)[0] == 1 - 0.5 * 700).all()
    assert (session.get(table)[1:] == 1).all()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_gradients_that_tapes_accumulate_are_whole(optimizer: Callable[[], sg.optim.Optimizer]) -> None:
    """Their updates are those of all rows, by an optimizer that is ``lazy``, too."""
    named = [[0, 7, 7, 7, 1, -1], [2, 2, 0, 3, 3, 3]]

    def declare(table: sg.Tensor, ids: sg.Tensor) -> Any:
        return sg.sum(sg.sin(table[ids]))

    with sg.Graph():
        session, table, ids, loss = declared(declare)
        update = optimizer().step([table])
        for batch in named:
            with session.forward(loss, {ids: batch}) as tape:
                tape.backward(loss)
        session.run(update)
        assert "assign_rows" not in session.compile(update).text("graph")
        found = session.get(table)
    with sg.Graph():
        session, table, ids, loss = declared(declare)
        gradient = sg.placeholder(table.shape, sg.float64)
        update = optimizer().apply_gradients([(gradient, table)])
        total = sum(session.run(sg.gradients(loss, [table]), {ids: batch})[0] for batch in named)
        session.run(update, {gradient: total})
        np.testing.assert_allclose(found, session.get(table), rtol=1e-12, atol=1e-14)


def test_steps_in_a_loop_update_the_table_that_it_carries(g: sg.Graph) -> None:
    table = sg.Variable(np.ones((ROWS, WIDTH)), name="table", dtype=sg.float64)
    ids = sg.placeholder((3, 2), sg.int64)

    def step(carry: sg.Tensor, rows: sg.Tensor) -> tuple[sg.Tensor, sg.Tensor]:
        loss = sg.sum(carry[rows] ** 2)
        (gradient,) = sg.gradients(loss, [carry])
        return carry - 0.25 * gradient, loss

    after, losses = sg.scan(step, table, ids)
    session = sg.Session()
    train = session.compile([losses, sg.assign(table, after)], [ids])
    found, _ = train([[0, 0], [0, 1], [5, 5]])
    np.testing.assert_array_equal(found, [16, 8, 16])
    want = np.ones((ROWS, WIDTH))
    want[[0, 1, 5]] = [[0.0], [0.5], [0.0]]
    np.testing.assert_array_equal(session.get(table), want)


@pytest.mark.parametrize("optimizer", [
    lambda: sg.optim.SGD(lr=0.1, momentum=0.9),
    lambda: sg.optim.SGD(lr=0.1, weight_decay=0.1),
    lambda: sg.optim.Adam(lr=0.1),
    lambda: sg.optim.RMSprop(lr=0.1),
])  # fmt: skip
def test_updates_that_change_every_row_stay_whole(optimizer: Callable[[], sg.optim.Optimizer]) -> None:
    assert "assign_rows" not in graph_text(lambda table, ids: optimizer().minimize(sg.sum(table[ids] ** 2)))


@pytest.mark.parametrize("changed", [
    lambda gradient: sg.clip(gradient, 0.1, 1.0),
    lambda gradient: sg.maximum(gradient, 0.1),
    lambda gradient: sg.minimum(gradient, -0.1),
    lambda gradient: gradient * sg.sum(sg.exp(gradient)),
    lambda gradient: gradient * sg.sum(gradient, axis=1, keepdims=True),
    lambda gradient: gradient * sg.mean(sg.cumulative_sum(gradient, axis=0)),
])  # fmt: skip
def test_gradients_in_which_zeros_count_stay_whole(changed: Callable[[Any], Any]) -> None:
    def declare(table: sg.Tensor, ids: sg.Tensor) -> Any:
        (gradient,) = sg.gradients(sg.sum(table[ids] ** 2), [table])
        return sg.optim.SGD(lr=0.1).apply_gradients([(changed(gradient), table)])

    assert "assign_rows" not in graph_text(declare)


def test_dense_gradients_and_small_tables_stay_whole() -> None:
    assert "assign_rows" not in graph_text(
        lambda table, ids: sg.optim.SGD(lr=0.1).minimize(sg.sum(table[ids]) + sg.sum(table**2))
    )
    with sg.Graph():
        table, ids = sg.Variable(np.ones((8, 4))), sg.placeholder((1,), sg.int64)
        train = sg.optim.SGD(lr=0.1).minimize(sg.sum(table[ids] ** 2))
        assert "assign_rows" not in sg.Session().compile(train, [ids]).text("graph")


def test_lazy_rows_keep_their_values_and_their_state(g: sg.Graph) -> None:
    """Rows are named by the gradient of a small table too, where nothing is done by rows."""
    start = np.ones((4, 2))
    table = sg.Variable(start, dtype=sg.float64)
    ids = sg.placeholder((2,), sg.int64)
    opt = sg.optim.Adam(lr=0.5, weight_decay=0.1, lazy=True)
    train = opt.minimize(sg.sum(sg.sin(table[ids])))
    session = sg.Session()
    session.run(train, {ids: [0, 2]})
    session.run(train, {ids: [2, 2]})
    after, mean = session.get(table), session.get(opt.slot(table, "exp_avg"))
    assert (after[[1, 3]] == 1).all()
    assert (mean[[1, 3]] == 0).all()
    assert (after[0] != 1).all()
    assert (after[2] < after[0]).all()


def test_a_lazy_update_of_a_dense_gradient_is_that_of_all_rows(g: sg.Graph) -> None:
    w = sg.Variable(np.ones((4, 2)), dtype=sg.float64)
    v = sg.Variable(np.ones((4, 2)), dtype=sg.float64)
    loss = sg.sum(sg.sin(w) * np.arange(4.0)[:, None]) + sg.sum(sg.sin(v) * np.arange(4.0)[:, None])
    train = sg.group(
        sg.optim.Adam(lr=0.5, lazy=True).minimize(loss, [w]), sg.optim.Adam(lr=0.5).minimize(loss, [v])
    )  # fmt: skip
    session = sg.Session()
    for _ in range(3):
        session.run(train)
    assert session.get(w).tobytes() == session.get(v).tobytes()


def test_lazy_is_an_option_of_groups_and_shown_where_it_is_set(g: sg.Graph) -> None:
    a, b = (sg.Variable(np.ones((4, 2)), dtype=sg.float64) for _ in range(2))
    ids = sg.placeholder((2,), sg.int64)
    opt = sg.optim.SGD(lr=0.5, weight_decay=0.5, groups=[{"params": [a], "lazy": True}])
    train = opt.minimize(sg.sum(a[ids]) + sg.sum(b[ids]))
    session = sg.Session()
    session.run(train, {ids: [0, 0]})
    assert (session.get(a)[1:] == 1).all()
    assert (session.get(b)[1:] == 0.75).all()
    assert "lazy=True" in repr(sg.optim.Adam(lazy=True))
    assert "lazy" not in repr(sg.optim.Adam())


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_write_the_same_rows(threads: int, g: sg.Graph) -> None:
    rows, width, count = 40_000, 256, 5000
    table = sg.Variable(np.ones((rows, width)), dtype=sg.float32)
    ids = sg.placeholder((count,), sg.int64)
    train = sg.optim.Adagrad(lr=0.5).minimize(sg.sum(table[ids] ** 2))
    session = sg.Session(num_threads=threads)
    step = session.compile(train, [ids])
    assert "assign_rows" in step.text("graph")
    found = np.random.default_rng(0).integers(0, 900, count)
    step(found)
    touched = np.unique(found)
    after = session.get(table)
    assert (np.delete(after, touched, 0) == 1).all()
    times = np.bincount(found, minlength=900)[touched].astype(np.float32)
    gradient = 2 * times[:, None] * np.ones(width, np.float32)
    np.testing.assert_allclose(after[touched], 1 - 0.5 * gradient / (gradient + 1e-10), rtol=1e-6, atol=1e-6)
