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


class Training:
    """Steps of an optimizer on a table of which a drawn program reads some rows."""

    def __init__(self, seed: int, optimizer: Callable[[], sg.optim.Optimizer], **compile_options: Any) -> None:
        draw = np.random.default_rng(seed)
        self.dtype = (sg.float32, sg.float64)[int(draw.integers(2))]
        tail = ((), (WIDTH,), (3, 5), (70,))[int(draw.integers(4))]
        rows = ROWS if tail else 20_000
        self.graph = sg.Graph()
        with self.graph:
            table = sg.Variable(draw.normal(size=(rows, *tail)), dtype=self.dtype, name="table")
            self.feeds, self.draws = [], []
            loss: Any = 0.0
            for number in range(int(draw.integers(1, 4))):
                shape = tuple(int(n) for n in draw.integers(1, 12, size=int(draw.integers(1, 3))))
                ids = sg.placeholder(shape, (sg.int64, sg.int32)[int(draw.integers(2))], name=f"ids{number}")
                low, high = (-40, 40) if draw.integers(2) else (0, 12)
                read = table[ids] if low < 0 or len(tail) != 1 or draw.integers(2) else sg.nn.embedding(ids, table)
                self.feeds.append(ids)
                self.draws.append((shape, low, high))
                loss = loss + sg.sum(sg.sin(read) if draw.integers(2) else read * read * 0.5)
            self.train = optimizer().minimize(loss)
        self.session = sg.Session(self.graph)
        self.step = self.session.compile([loss, self.train], self.feeds, **compile_options)
        self.random = np.random.default_rng(seed + 1)

    def run(self, steps: int = 4) -> list[Array]:
        """The losses, and all variables after the steps."""
        losses = []
        for _ in range(steps):
            ids = [self.random.integers(low, high, size=shape) for shape, low, high in self.draws]
            losses.append(self.step(*(i.astype(x.dtype) for i, x in zip(ids, self.feeds, strict=True)))[0])
        return [np.array(losses), *(self.session.get(x) for x in self.graph.variables.values())]

    @property
    def table_bytes(self) -> int:
        return int(self.session.get(self.graph.variables["table"]).nbytes)


def same_bits(a: list[Array], b: list[Array]) -> None:
    np.testing.assert_allclose(a[0], b[0], rtol=1e-5)  # whose terms are added up in other kernels
    for x, y in zip(a[1:], b[1:], strict=True):
        assert x.tobytes() == y.tobytes()


@pytest.mark.parametrize("seed", range(40))
def test_rows_and_whole_tables_are_updated_to_the_same_bits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    target = EVERY[seed % len(EVERY)]
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    optimizer = OPTIMIZERS[seed % len(OPTIMIZERS)]
    by_rows = Training(seed, optimizer)
    assert "assign_rows" in by_rows.step.text("graph")
    assert by_rows.step.memory.arena_bytes < by_rows.table_bytes / 2
    monkeypatch.setenv("STATICGRAD_DISABLE", "row_updates")
    whole = Training(seed, optimizer)
    assert "assign_rows" not in whole.step.text("graph")
    same_bits(by_rows.run(), whole.run())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40, 400))
def test_many_drawn_tables(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    test_rows_and_whole_tables_are_updated_to_the_same_bits(seed, monkeypatch)


@pytest.mark.parametrize("seed", range(4))
def test_the_interpreter_agrees(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    by_rows = Training(seed, OPTIMIZERS[2 * seed]).run()
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    for x, y in zip(by_rows, Training(seed, OPTIMIZERS[2 * seed]).run(), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=1e-6)


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


@pytest.mark.parametrize(
    ("optimizer", "clipped"),
    [
        (lambda: sg.optim.SGD(lr=0.1, momentum=0.9), False),
        (lambda: sg.optim.SGD(lr=0.1, weight_decay=0.1), False),
        (lambda: sg.optim.Adam(lr=0.1), False),
        (lambda: sg.optim.RMSprop(lr=0.1), False),
        (lambda: sg.optim.SGD(lr=0.1), True),
    ],
)  # fmt: skip
def test_updates_that_change_every_row_or_read_every_gradient_stay_whole(
    optimizer: Callable[[], sg.optim.Optimizer], clipped: bool
) -> None:
    def declare(table: sg.Tensor, ids: sg.Tensor) -> Any:
        gradients = sg.gradients(sg.sum(table[ids] ** 2), [table])
        if clipped:
            gradients = sg.optim.clip_by_global_norm(gradients, 1.0)
        return optimizer().apply_gradients(zip(gradients, [table], strict=True))

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
