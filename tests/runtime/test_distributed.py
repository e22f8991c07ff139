"""Many processes: collective operations beside NumPy's, their derivatives, training on several ranks, what fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from source_tree import ROOT
from support.declaring import f32
from support.ranks import fail, finish, run, start

import staticgrad as sg
from staticgrad.base import config
from staticgrad.compiler import binary
from staticgrad.graph.optable import Op
from staticgrad.ops.collectives import BARRIER, COLLECTIVES, REDUCE_START, REDUCE_WAIT, CollectiveAttributes

d = sg.distributed

# -- one process ----------------------------------------------------------------------------------------------------


def test_on_one_process_nothing_changes(g: sg.Graph) -> None:
    x = sg.placeholder((4, 2), requires_grad=True)
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert (d.rank(), d.size()) == (0, 1)
    same = [d.all_reduce(x), d.all_reduce(x, "max"), d.all_gather(x), d.reduce_scatter(x), d.broadcast(x)]
    sess = sg.Session(g)
    for y in sess.run(same, {x: values}):
        np.testing.assert_array_equal(y, values)
    assert sess.run(d.barrier()) is None
    (dx,) = sg.gradients(sg.sum(d.all_reduce(x) ** 2), [x])
    np.testing.assert_array_equal(sess.run(dx, {x: values}), 2 * values)
    assert sess.run(d.all_gather(sg.constant(3.0))).shape == (1,)
    assert sess.run(d.all_reduce(sg.constant([1, 2]), "mean")).dtype == np.float64


@pytest.mark.parametrize("op", [op for op in COLLECTIVES if op.cases], ids=lambda op: op.name)
def test_ops_of_one_rank_give_their_operands(op: Op, backend: str) -> None:
    """The way to the words of a collective operation, without MPI."""
    with sg.Graph() as g:
        feeds: dict[sg.Tensor, Any] = {}
        for dtype in op.dtypes:
            x = sg.placeholder((3, 4), dtype)
            feeds[x] = np.arange(12).reshape(3, 4).astype(dtype)
        ys = [g.add(op, (x,), op.cases[0].attrs) for x in feeds]
        results = [y.outputs[0] for y in ys]
        if op is REDUCE_START:
            results = [g.add(REDUCE_WAIT, y.outputs, op.cases[0].attrs).outputs[0] for y in ys]
        for y, value in zip(sg.Session(g).run(results, feeds), feeds.values(), strict=True):
            np.testing.assert_array_equal(y, value)
        assert sg.Session(g).run(g.add(BARRIER, (), CollectiveAttributes(1))) is None


def test_a_rank_of_one_shard_adds_up_as_one_of_several(g: sg.Graph) -> None:
    """Both are compiled for the size of the batch: a rank of several shards cannot serve a range of sizes, and what
    serves one may add up in another order."""
    x = sg.placeholder((None, 4))
    loss = sg.mean(sg.nn.linear(x, sg.Variable(np.ones((1, 4), np.float32))) ** 2)
    with warnings.catch_warnings(), sg.Session(g) as session:
        warnings.simplefilter("ignore", sg.RecompileWarning)
        step = session.compile(sg.optim.SGD(0.1).minimize(loss, distributed=True, shards=1), x)
        for rows in (5, 6, 7, 7):
            step(np.ones((rows, 4), np.float32))
        assert session.compile_count == 3


def test_collectives_over_examples_and_derivatives_on_one_rank(g: sg.Graph) -> None:
    """Batch rules and derivatives of the entries themselves, which the functions leave out on one process."""
    x = sg.placeholder((5, 2, 3), sg.float64)
    values = np.random.default_rng(0).normal(size=(5, 2, 3))
    fetches = []
    for op in COLLECTIVES:
        if not op.cases or op is REDUCE_START:
            continue
        for case in op.cases:
            y = sg.vmap(lambda row, op=op, case=case: row.graph.add(op, (row,), case.attrs).outputs[0])(x)
            fetches.append((y, *sg.gradients(sg.sum(y**3), [x]), *sg.jvp([sg.sum(y**3)], [x], [x])))
    for y, dx, t in sg.Session(g).run(fetches, {x: values}):
        np.testing.assert_allclose(y, values)
        np.testing.assert_allclose(dx, 3 * values**2)
        np.testing.assert_allclose(t, (3 * values**3).sum())


def test_programs_with_collectives_are_kept_on_disk(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("STATICGRAD_BACKEND", "compiled")
    found: list[bool] = []

    def noted(*args: Any, **kwargs: Any) -> binary.Binary:
        made = make(*args, **kwargs)
        found.append(made.was_kept)
        return made

    make = binary.binary
    monkeypatch.setattr(binary, "binary", noted)
    for _ in range(2):
        with sg.Graph() as g:
            x = sg.placeholder((3,))
            y = g.add(COLLECTIVES[0], (x * 2,), CollectiveAttributes(1)).outputs[0] + 1
        np.testing.assert_array_equal(sg.Session(g).compile(y, x)(f32(1, 2, 3)), f32(3, 5, 7))
    assert found == [False, True]


def test_a_program_of_other_ranks_is_refused(g: sg.Graph, backend: str) -> None:
    x = sg.placeholder((3,))
    y = g.add(COLLECTIVES[0], (x,), CollectiveAttributes(4)).outputs[0]
    with pytest.raises(sg.GraphError, match=r"expected 4 ranks, .*actual 1"):
        sg.Session(g).run(y, {x: f32(1, 2, 3)})


def test_bad_arguments_are_refused(g: sg.Graph) -> None:
    x, loss = sg.constant([1.0, 2.0, 3.0]), sg.sum(sg.Variable([1.0]))
    with pytest.raises(sg.GraphError, match="as op, actual 'median'"):
        d.all_reduce(x, "median")
    with pytest.raises(sg.GraphError, match="expected numbers, actual bool"):
        d.all_reduce(x > 1)
    with pytest.raises(sg.GraphError, match="expected a rank below 1, actual 1"):
        d.broadcast(x, root=1)
    with pytest.raises(sg.GraphError, match="axis 0 to divide, actual float32"):
        d.reduce_scatter(sg.constant(1.0))
    with pytest.raises(sg.GraphError, match="cannot be divided evenly among 2 ranks"):
        g.add(COLLECTIVES[2], (x,), CollectiveAttributes(2))
    opt = sg.optim.SGD(lr=0.1)
    for wrong in ({"buckets": 2}, {"shards": 2}, {"distributed": True, "buckets": 0}):
        with pytest.raises(sg.GraphError, match="sgd: minimize: "):
            opt.minimize(loss, **wrong)  # type: ignore[arg-type]
    with pytest.raises(sg.GraphError, match="has to be an open size"):
        opt.minimize(loss, distributed=True, shards=2)


def test_a_loss_that_cannot_be_sharded_is_refused(g: sg.Graph) -> None:
    x, w = sg.placeholder((None, 3)), sg.Variable(f32(1, 2, 3))
    opt = sg.optim.SGD(lr=0.1)
    for loss, why in (
        (sg.mean(sg.nn.dropout(x @ w, 0.5)), "draws random numbers"),
        (sg.mean(sg.print(x @ w)), "has an effect"),
        (sg.mean(sg.nn.batch_norm(x * w, w, w, training=True)), "has an effect"),
    ):
        with pytest.raises(sg.GraphError, match=why):
            opt.minimize(loss, distributed=True, shards=2)
    train = opt.minimize(sg.mean(x @ w), distributed=True, shards=4)
    step = sg.Session(g).compile(train, x)
    step(np.ones((8, 3), np.float32))
    with pytest.raises(sg.GraphError, match=r"expected a multiple of 4 as the size of axis 0, actual float32\[6, 3\]"):
        step(np.ones((6, 3), np.float32))


def test_c_functions_take_no_part(g: sg.Graph) -> None:
    x = sg.placeholder((3,))
    y = g.add(COLLECTIVES[0], (x,), CollectiveAttributes(1)).outputs[0]
    with pytest.raises(sg.GraphError, match="cannot be called from C: it takes part in all_reduce"):
        sg.Session(g).compile(y, x).cfunc("slots")


# -- several processes ----------------------------------------------------------------------------------------------

OPERATIONS = """
rng = np.random.default_rng(0)
everywhere = rng.normal(size=(size, 4, 3))  # of all ranks
mine = everywhere[rank]
x = sg.placeholder((4, 3), sg.float64, requires_grad=True)
weights = rng.normal(size=(size, 4 * size, 3))  # of what each rank makes of the results

def summed(y):
    return sg.sum(y**2 * sg.constant(weights[rank][: y.shape[0]]))

ties = everywhere.copy(); ties[:, 0] = 1.0
operations = {
    "sum": (d.all_reduce(x), lambda v: v.sum(0)),
    "mean": (d.all_reduce(x, "mean"), lambda v: v.mean(0)),
    "max": (d.all_reduce(x, "max"), lambda v: v.max(0)),
    "min": (d.all_reduce(x, "min"), lambda v: v.min(0)),
    "gather": (d.all_gather(x), lambda v: v.reshape(-1, 3)),
    "scatter": (d.reduce_scatter(x), lambda v, r=None: v.sum(0).reshape(size, -1, 3)[rank if r is None else r]),
    "broadcast": (d.broadcast(x, size - 1), lambda v: v[-1]),
}

def total(f, v):  # what all ranks derive, added up
    ys = [f(v, r) if f is operations["scatter"][1] else f(v) for r in range(size)]
    return sum((y**2 * weights[r][: len(y)]).sum() for r, y in enumerate(ys))

fetches = {}
for name, (y, f) in operations.items():
    (dx,) = sg.gradients(summed(y), [x])
    (t,) = sg.jvp([y], [x], [sg.constant(weights[rank][:4])])
    fetches[name] = (y, dx, t, *sg.gradients(sg.sum(dx * sg.constant(mine)), [x]))
sess = sg.Session()
step = sess.compile(fetches, x)
found = step(mine)
epsilon = 1e-6
for name, (y, f) in operations.items():
    got, dx, t, second = found[name]
    assert np.allclose(got, f(everywhere)), name
    expected = np.zeros((4, 3))
    for place in np.ndindex(4, 3):
        moved = np.zeros_like(everywhere); moved[(rank, *place)] = epsilon
        expected[place] = (total(f, everywhere + moved) - total(f, everywhere - moved)) / (2 * epsilon)
    assert np.allclose(dx, expected, atol=1e-6), (name, dx, expected)
    moved = weights[:, :4] * epsilon
    assert np.allclose(t, (f(everywhere + moved) - f(everywhere - moved)) / (2 * epsilon), atol=1e-6), name
found = step(ties[rank])
assert np.allclose(found["max"][1][0], (2 * weights[:, 0] * 1.0).sum(0) / size)  # ties share the gradient

# What ranks do for each other comes in order, in loops and branches too, in tapes and over examples.
loop, turns = sg.scan(lambda c, row: (c + d.all_reduce(row), d.all_reduce(c, "max")), x[0], x)
branch = sg.cond(sg.constant(True), lambda: d.all_reduce(x), lambda: x)
rows = sg.vmap(d.all_gather)(x)
sums = everywhere.sum(0)
assert np.allclose(sess.run(loop, {x: mine}), mine[0] + sums.sum(0))
assert np.allclose(sess.run(branch, {x: mine}), sums)
assert np.allclose(sess.run(rows, {x: mine}), np.concatenate(list(everywhere), 1))
loss = sg.sum(sg.sin(loop)) + sg.sum(branch**2)
(direct,) = sess.run(sg.gradients(loss, [x]), {x: mine})
with sess.forward(loss, {x: mine}) as tape:
    tape.backward(loss)
assert np.allclose(sess.grad(x), direct) and np.abs(direct).sum() > 1

# What was started is read when it has ended; what is computed again asks nobody again.
from staticgrad.ops.collectives import end_reduce, start_reduce
large = sg.placeholder((100_000,))
begun = [start_reduce(large * k) for k in (1, 2, 3)]
together = sg.concat([end_reduce(one) * 2 for one in begun], 0)
for _ in range(5):
    got = sess.run(together, {large: np.full(100_000, rank + 1, np.float32)})
    assert np.array_equal(got.reshape(3, -1)[:, 7], size * (size + 1) * np.float32([1, 2, 3]))
again = sg.sum(sg.checkpoint(lambda v: sg.sin(d.all_reduce(sg.exp(v))) ** 2, x))
plain = sg.sum(sg.sin(d.all_reduce(sg.exp(x))) ** 2)
one, two = sess.run([*sg.gradients(again, [x]), *sg.gradients(plain, [x])], {x: mine})
assert np.allclose(one, two)

# All dtypes
for dtype in (sg.bool, sg.int8, sg.int16, sg.int32, sg.int64, sg.uint8, sg.uint16, sg.uint32, sg.uint64,
              sg.float16, sg.bfloat16, sg.float32, sg.float64):
    others = [(np.arange(3 * size).reshape(size, 3) + r).astype(dtype) for r in range(size)]
    z = sg.placeholder((size, 3), dtype)
    number = dtype != sg.bool
    ys = [d.all_gather(z), d.broadcast(z, size - 1), d.all_reduce(z, "max"), d.all_reduce(z, "min")]
    wanted = [np.concatenate(others), others[-1], np.max(others, 0), np.min(others, 0)]
    if number:
        ys += [d.all_reduce(z), d.reduce_scatter(z)]
        both = sum(o.astype(np.float64) for o in others).astype(dtype)
        wanted += [both, both.reshape(size, -1, 3)[rank]]
    for got, want in zip(sess.run(ys, {z: others[rank]}), wanted, strict=True):
        assert got.dtype == want.dtype and (got == want).all(), (dtype, got, want)

# Open sizes, an empty tensor, something that is fetched as it is fed
n = sg.placeholder((None, 2))
step = sess.compile(d.all_reduce(n * 2), n)
for length in (0, 1, 3, 40, 3):
    assert np.array_equal(step(np.full((length, 2), rank, np.float32)), np.full((length, 2), size * (size - 1))), length
print("done", rank)
"""


def test_collective_operations_equal_numpy_s() -> None:
    assert run(2, OPERATIONS).count("done") == 2


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 4])
def test_collective_operations_on_other_numbers_of_ranks(ranks: int) -> None:
    assert run(ranks, OPERATIONS).count("done") == ranks


@pytest.mark.slow
@pytest.mark.parametrize("switch", [{"BACKEND": "reference"}, {"MEMORY": "poison"}, {"VERIFY": "2"}], ids=str)
def test_collective_operations_under_switches(switch: dict[str, str]) -> None:
    assert run(2, OPERATIONS, **{f"STATICGRAD_{name}": value for name, value in switch.items()}).count("done") == 2


LENGTHS = """
from staticgrad.base.world import BLOCK as SHORT
x = sg.placeholder((None,), sg.int64)
step = sg.Session().compile(
    {
        "sum": d.all_reduce(x), "max": d.all_reduce(x, "max"), "min": d.all_reduce(x, "min"),
        "gather": d.all_gather(x), "last": d.broadcast(x, size - 1),
    },
    x,
)
y = sg.placeholder((None,), requires_grad=True)
(to_one,) = sg.gradients(sg.sum(d.broadcast(y, size - 1) * (rank + 1)), [y])
given = sg.Session().compile(to_one, y)
parts = sg.placeholder((size, None), sg.int64)
divided = sg.Session().compile(d.reduce_scatter(parts), parts)
most = (SHORT // size - 24) // 8  # elements of which all ranks' travel with the headers
for n in (0, 1, most // size, most // size + 1, most, most + 1, 10 * most, 1, 10 * most):
    ours = [np.arange(n) * (r + 2) for r in range(size)]
    found = step(ours[rank])
    assert np.array_equal(found["sum"], sum(ours)) and np.array_equal(found["max"], ours[-1])
    assert np.array_equal(found["gather"], np.concatenate(ours)) and np.array_equal(found["last"], ours[-1])
    assert np.array_equal(found["min"], ours[0])
    expected = np.full(n, size * (size + 1) / 2 if rank == size - 1 else 0)
    assert np.array_equal(given(np.zeros(n, np.float32)), expected)
    if n:
        wide = np.stack([ours[rank] + k for k in range(size)])
        assert np.array_equal(divided(wide)[0], sum(ours) + rank * size)
    sg.Session().run(d.barrier())
print("done", rank)
"""


def test_short_operands_travel_with_the_headers_and_long_ones_behind_them() -> None:
    assert run(2, LENGTHS).count("done") == 2


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [3, 4, 5])
def test_short_and_long_operands_on_other_numbers_of_ranks(ranks: int) -> None:
    assert run(ranks, LENGTHS).count("done") == ranks


TRAINING = """
import sys, zlib
from staticgrad.base.world import world
how, whole = eval(sys.argv[1]), int(sys.argv[2])
batch = whole // size
rng = np.random.default_rng(0)
images, labels = rng.normal(size=(whole, 20)).astype(np.float32), rng.integers(0, 5, whole)
x, t = sg.placeholder((None, 20)), sg.placeholder((None,), sg.int64)
net = sg.nn.Sequential(sg.nn.Linear(20, 33), sg.nn.ReLU(), sg.nn.LayerNorm(33), sg.nn.Linear(33, 5))
loss = sg.nn.cross_entropy(net(x), t)
opt = sg.optim.Adam(lr=0.01)
train = opt.minimize(loss, **how)
sess = sg.Session(seed=rank)  # each rank has values of its own, until rank 0's are taken
step = sess.compile([d.all_reduce(loss, "mean"), train], [x, t])
mine = slice(rank * batch, rank * batch + batch)
for _ in range(10):
    value, _ = step(images[mine], labels[mine])
bits = zlib.crc32(b"".join(sess.get(w).tobytes() for w in net.parameters()))
assert size == 1 or len(set(world().comm.allgather(bits))) == 1
if rank == 0:
    print(bits, value, sess.get(net[0].weight).sum())
"""


CONVOLUTIONAL = (
    TRAINING.replace("(whole, 20)", "(whole, 3, 9, 9)")
    .replace("(None, 20)", "(None, 3, 9, 9)")
    .replace(
        "sg.nn.Linear(20, 33), sg.nn.ReLU(), sg.nn.LayerNorm(33), sg.nn.Linear(33, 5)",
        "sg.nn.Conv2d(3, 8, 3), sg.nn.GELU(), sg.nn.GroupNorm(2, 8), sg.nn.Flatten(), sg.nn.Linear(392, 40),"
        " sg.nn.LayerNorm(40), sg.nn.Linear(40, 5)",
    )
)


def _trained(ranks: int, how: str, script: str = TRAINING, whole: int = 32) -> tuple[int, Any]:
    """A checksum of all weights, and the loss and a sum of weights."""
    bits, *numbers = run(ranks, script, how, str(whole)).split()
    return int(bits), [float(number) for number in numbers]


def test_shards_give_the_same_bits_on_other_numbers_of_ranks() -> None:
    one, two = (_trained(ranks, "dict(distributed=True, shards=4)") for ranks in (1, 2))
    assert one[0] == two[0]


@pytest.mark.slow
@pytest.mark.parametrize("script", [TRAINING, CONVOLUTIONAL], ids=["dense", "convolutional"])
def test_training_on_several_ranks_is_that_on_one(script: str) -> None:
    plain = _trained(1, "{}", script)
    sharded = [_trained(ranks, "dict(distributed=True, shards=4)", script) for ranks in (1, 2, 4)]
    assert len({bits for bits, _ in sharded}) == 1
    several = [_trained(2, f"dict(distributed=True, buckets={n})", script) for n in (1, 3)]
    for _, numbers in (*sharded, *several):
        np.testing.assert_allclose(numbers, plain[1], rtol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 6, 12])
def test_any_number_of_shards_that_ranks_divide(shards: int) -> None:
    how = f"dict(distributed=True, shards={shards})"
    assert len({_trained(n, how, whole=24)[0] for n in (1, 2, 3) if shards % n == 0}) == 1


TABLES = """
import sys, zlib
from staticgrad.base.world import world
how, dtype, reads = eval(sys.argv[1]), getattr(sg, sys.argv[2]), int(sys.argv[3])
rows, width, batch = 4000, 8, 40
rng = np.random.default_rng(0)
start = rng.normal(size=(rows, width))
named = rng.integers(-9, 30, (size, 5, 2, batch))  # rows that several ranks name, and one several times

def steps(optimizer, declare):
    with sg.Graph() as g:
        table, ids = sg.Variable(start, dtype=dtype), sg.placeholder((2, batch), sg.int64)
        loss = sum(sg.sum(sg.sin(table[ids[i]] * (i + 1 + rank))) for i in range(reads))
        sess = sg.Session(g)
        step = sess.compile(declare(optimizer, loss, table), ids)
        for ids in named[rank]:
            step(ids)
        return step, [sess.get(x) for x in g.variables.values()]

def whole(optimizer, loss, table):  # every rank's gradient whole, and added in the order of the ranks
    (gradient,) = sg.gradients(loss, [table])
    wide = sg.float64 if dtype == sg.float64 else sg.float32
    parts = d.all_gather(sg.reshape(gradient.astype(wide), (1, rows, width)))
    total = parts[0]
    for r in range(1, size):
        total = total + parts[r]
    return optimizer.apply_gradients([((total * (1 / size)).astype(dtype), table)])

for make in (lambda: sg.optim.SGD(lr=0.1), lambda: sg.optim.Adagrad(lr=0.1), lambda: sg.optim.Adam(lr=0.1, lazy=True)):
    by_rows, found = steps(make(), lambda optimizer, loss, table: optimizer.minimize(loss, [table], **how))
    assert by_rows.text("graph").count("all_gather(") == 2, by_rows.text("graph")
    assert "assign_rows(" in by_rows.text("graph") and by_rows.memory.arena_bytes < 2 * rows * width
    bits = b"".join(x.tobytes() for x in found)
    assert len(set(world().comm.allgather(zlib.crc32(bits)))) == 1
    if not make().lazy:
        _, wanted = steps(make(), whole)
        assert b"".join(x.tobytes() for x in wanted) == bits
print("done")
"""


@pytest.mark.parametrize(("ranks", "how", "dtype", "reads"), [
    (2, "dict(distributed=True)", "float32", 2),
    (3, "dict(distributed=True, buckets=2)", "bfloat16", 2),
    (2, "dict(distributed=True)", "float64", 1),
])  # fmt: skip
def test_rows_of_tables_travel_and_are_added_in_the_order_of_the_ranks(
    ranks: int, how: str, dtype: str, reads: int
) -> None:
    assert run(ranks, TABLES, how, dtype, str(reads)).count("done") == ranks


def test_rows_of_a_table_travel_beside_buckets_of_other_gradients() -> None:
    run(
        2,
        """
        def trained(rows, ids, how):
            with sg.Graph() as g:
                table, w = sg.Variable(np.ones((rows, 8))), sg.Variable(np.full((8, 8), 0.1))
                fed = sg.placeholder(ids.shape[1:], sg.int64)
                loss = sg.mean(sg.sin(table[fed] @ w))
                train = sg.optim.SGD(lr=1.0).minimize(loss, distributed=True, **how)
                step = sg.Session(g).compile([train, table, w], fed)
                for one in ids:
                    _, after, weights = step(one)
            return step, after, weights

        ids = np.random.default_rng(rank).integers(0, 8, (3, 16))
        for how in ({}, {"buckets": 2}):
            many, few = trained(4000, ids, how), trained(8, ids, how)  # the smaller table is reduced whole
            assert "all_gather" in many[0].text("graph") and "all_gather" not in few[0].text("graph")
            np.testing.assert_allclose(many[1][:8], few[1], rtol=1e-6)
            np.testing.assert_allclose(many[2], few[2], rtol=1e-6)
            assert (many[1][8:] == 1).all()
        """,
    )


def test_an_index_out_of_range_on_one_rank_ends_all() -> None:
    assert "index 4000 is out of range" in fail(
        2,
        """
        table, ids = sg.Variable(np.ones((4000, 8))), sg.placeholder((3,), sg.int64)
        train = sg.optim.SGD(lr=0.1).minimize(sg.sum(table[ids] ** 2), distributed=True)
        sg.Session().run(train, {ids: [1, 2, 4000 if rank else 3]})
        """,
    )


def test_programs_that_differ_and_a_rank_that_raises_end_all() -> None:
    errors = fail(2, """
        import sys
        x = sg.placeholder((3 + rank,))
        try:
            sg.Session().run(d.all_reduce(x), {x: np.zeros(3 + rank, np.float32)})
        except sg.GraphError as error:
            assert "number 0 of what they do together" in str(error) and "declared at" in str(error), error
            assert "rank 0: all_reduce(sum, root 0) of float32[3]" in str(error), error
            assert "rank 1: all_reduce(sum, root 0) of float32[4]" in str(error), error
        else:
            sys.exit(3)
        if rank == 1:
            raise RuntimeError("this rank has no data")
        sg.Session().run(d.barrier())  # waits for rank 1
    """)  # fmt: skip
    assert "RuntimeError: this rank has no data" in errors
    assert "rank 1 of 2:" in errors


def test_ranks_at_different_operations_are_told_apart_before_any_sum_is_mixed() -> None:
    script = """
        from staticgrad.base.world import world
        four, many = np.full(4, rank + 1.0), np.full(1000, rank + 1.0)
        x, y = sg.placeholder((None,), sg.float64), sg.placeholder((None,), sg.float32)
        chosen = sg.placeholder((), sg.bool)
        sess, other = sg.Session(), sg.Session()
        total, biggest = sess.compile(d.all_reduce(x * 2), x), sess.compile(d.all_reduce(x, "max"), x)
        again, elsewhere = sess.compile(d.all_reduce(x * 3), x), other.compile(d.all_reduce(x * 2), x)
        short = sess.compile(d.all_reduce(y), y)
        first, second = (sess.compile(d.broadcast(x, root), x) for root in (0, 1))
        gathered, met = sess.compile(d.all_gather(x), x), sess.compile(d.barrier())
        branch = sess.compile(sg.cond(chosen, lambda: d.all_reduce(x * 5), lambda: d.all_reduce(x * 7)), [chosen, x])
        for warm in (total, biggest, again, elsewhere, first, second, gathered):
            warm(four), warm(many)
        short(np.float32(four)), met(), branch(True, four), branch(False, four)

        cases = {
            "all_reduce(sum) of 4 float64|all_reduce(max) of 4 float64": (total, biggest),
            "in program|in program": (total, again),
            "all_reduce(sum) of 4|all_reduce(sum) of 4": (total, elsewhere),
            "of 4 float64|of 4 float32": (total, lambda v: short(np.float32(v))),
            "broadcast(root 0) of 4 float64|broadcast(root 1) of 4 float64": (first, second),
            "all_gather of 4 float64|barrier": (gathered, lambda v: met()),
            "of 4 float64|of 1000 float64": (total, lambda v: total(many)),
            "of 1000 float64|of 999 float64": (lambda v: total(many), lambda v: total(many[1:])),
            "of 4 float64|of 3 float64": (total, lambda v: total(v[1:])),
            "broadcast(root 0) of 4|broadcast(root 0) of 5": (first, lambda v: first(np.zeros(5))),
            "of 4 float64, number 0|of 4 float64, number 1": (lambda v: branch(True, v), lambda v: branch(False, v)),
            "is at all_reduce|loads a program": (total, lambda v: sg.Session().run(d.all_reduce(x * 9), {x: v})),
            "is at broadcast(root 0)|is at all_reduce(sum)": (
                lambda v: world().broadcast(v, 0), lambda v: world().all_reduce(v, "sum")),
        }
        for words, calls in cases.items():
            try:
                calls[rank](four)
            except sg.StaticGradError as error:
                lines = [line for line in str(error).splitlines() if line.startswith("  rank ")]
                for number, part in enumerate(words.split("|")):
                    assert lines[number].startswith(f"  rank {number} ") and part in lines[number], (words, lines)
            else:
                raise AssertionError(words)
            for later in (total, lambda v: world().all_reduce(v, "sum")):
                try:
                    later(four)
                except sg.StaticGradError as error:
                    assert "an earlier operation of the ranks has failed" in str(error), error
                else:
                    raise AssertionError("went on")
            world().failed[0] = 0  # each of the two has taken the other's header
        assert np.array_equal(total(four), np.full(4, 6.0))
        print("done", rank)
    """
    assert run(2, script).count("done") == 2


@pytest.mark.slow
def test_neighbours_among_four_ranks_find_out_for_all() -> None:
    for length in (4, 5000):
        errors = fail(4, f"""
            x = sg.placeholder((None,))
            sess = sg.Session()
            one, two = sess.compile(d.all_reduce(x), x), sess.compile(d.all_reduce(x * 2), x)
            one(np.zeros({length}, np.float32)), two(np.zeros({length}, np.float32))
            (one if rank < 2 else two)(np.zeros({length}, np.float32))
            print("mixed")
        """)  # fmt: skip
        assert "the ranks are not at the same operation" in errors
        assert f"all_reduce(sum) of {length} float32, number 0 in program 1" in errors


@pytest.mark.parametrize("leaves", ["pass", "sys.exit()"])
def test_a_rank_that_does_fewer_steps_ends_the_others(leaves: str) -> None:
    errors = fail(2, f"""
        import sys
        x = sg.placeholder((1000,))
        step = sg.Session().compile(d.all_reduce(x), x)
        for _ in range(9 + rank):
            step(np.zeros(1000, np.float32))
        if rank == 0:
            {leaves}
    """)  # fmt: skip
    assert "StaticGradError: all_reduce ('all_reduce'): the ranks are not at the same operation" in errors
    assert "rank 0 has ended its script" in errors
    assert "rank 1 is at all_reduce(sum) of 1000 float32, number 0 in program 1" in errors
    assert "declared at" in errors


def test_a_rank_whose_error_is_caught_and_that_ends_is_no_wait_for_the_others() -> None:
    errors = fail(2, """
        x = sg.placeholder((3,))
        y = d.all_reduce(x)
        step = sg.Session().compile(y, x)
        try:
            if rank == 0:
                raise RuntimeError("no data")
            step(np.zeros(3, np.float32))
        except RuntimeError:
            pass
    """)  # fmt: skip
    assert "rank 0 has ended its script" in errors


@pytest.mark.parametrize("backend", ["compiled", "reference"])
def test_a_rank_that_never_comes_is_waited_for_as_long_as_the_switch_says(backend: str) -> None:
    errors = fail(2, """
        import threading
        x = sg.placeholder((3,))
        step = sg.Session().compile(d.all_reduce(x), x)
        step(np.zeros(3, np.float32))
        if rank == 1:
            threading.Event().wait()
        step(np.zeros(3, np.float32))
    """, STATICGRAD_MPI_TIMEOUT="1.5", STATICGRAD_BACKEND=backend)  # fmt: skip
    assert "rank 0 of 2:" in errors
    assert "waited 1.5 seconds for the other ranks" in errors
    assert "all_reduce" in errors


@pytest.mark.slow
def test_a_started_reduction_that_never_ends_is_given_up() -> None:
    errors = fail(3, """
        import threading
        from staticgrad.ops.collectives import end_reduce, start_reduce
        x = sg.placeholder((100_000,))
        y = end_reduce(start_reduce(x))
        step = sg.Session().compile(y, x)
        step(np.zeros(100_000, np.float32))
        if rank == 2:
            threading.Event().wait()
        step(np.zeros(100_000, np.float32))
    """, STATICGRAD_MPI_TIMEOUT="1.5")  # fmt: skip
    assert "waited 1.5 seconds for the other ranks" in errors


def test_a_time_limit_that_is_no_number_is_refused() -> None:
    errors = fail(2, "sg.Session().run(d.barrier())", STATICGRAD_MPI_TIMEOUT="soon")
    assert "STATICGRAD_MPI_TIMEOUT='soon': expected seconds, 0 for no limit" in errors


@pytest.mark.slow
def test_a_check_that_fails_on_one_rank_ends_all() -> None:
    errors = fail(2, """
        x = sg.placeholder((3,))
        with sg.control_dependencies([sg.assert_(sg.all(x < 1), "too large")]):
            y = d.all_reduce(x)
        step = sg.Session().compile(y, x)
        step(np.zeros(3, np.float32))
        step(np.full(3, rank, np.float32))
    """)  # fmt: skip
    assert "assertion failed: too large" in errors
    assert "rank 1 of 2:" in errors


@pytest.mark.slow
def test_what_mpi_refuses_is_an_error() -> None:
    errors = fail(2, """
        from staticgrad.ops.collectives import BROADCAST, CollectiveAttributes
        x = sg.placeholder((1000,))  # the short ones MPI does not see as what they are
        (y,) = x.graph.add(BROADCAST, (x,), CollectiveAttributes(size, root=7)).outputs
        sg.Session().run(y, {x: np.zeros(1000, np.float32)})
    """)  # fmt: skip
    assert "StaticGradError: broadcast ('broadcast'): MPI returned" in errors
    assert "Invalid root" in errors
    assert "declared at" in errors


@pytest.mark.slow
def test_a_rank_that_is_killed_ends_the_others() -> None:
    running = start(2, """
        import os
        x = sg.placeholder((1000,))
        step = sg.Session().compile(d.all_reduce(x), x)
        step(np.zeros(1000, np.float32))
        if rank == 1:
            print(os.getpid(), flush=True)
        while True:
            step(np.zeros(1000, np.float32))
    """)  # fmt: skip
    assert running.stdout is not None
    pid = int(running.stdout.readline())
    os.kill(pid, signal.SIGKILL)
    done = finish(running, 10)
    assert done.returncode != 0


def test_ranks_of_a_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in config.NEIGHBOURS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert config.available_cores() == 8
    for ranks, cores in ((1, 8), (3, 2), (8, 1), (100, 1)):
        monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", str(ranks))
        assert config.available_cores() == cores


@pytest.mark.slow
def test_the_example_gives_the_same_bits_on_one_two_and_four_processes() -> None:
    pytest.importorskip("sklearn")
    path = str(ROOT / "examples" / "data_parallel_digits.py")
    script = f"import runpy; runpy.run_path({path!r}, run_name='__main__')"
    assert len({run(ranks, script).rpartition(" ")[2] for ranks in (1, 2, 4)}) == 1


def test_one_of_several_processes_needs_mpi4py() -> None:
    script = "import sys; sys.modules['mpi4py'] = None; import staticgrad as sg; print(sg.distributed.size())"
    alone = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert alone.stdout == "1\n"
    several = {**os.environ, "PMI_SIZE": "2", "PMI_RANK": "0"}
    refused = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=several)
    assert "pip install '.[mpi]'" in refused.stderr


def test_processes_of_another_mpi_are_not_taken_for_one() -> None:
    pytest.importorskip("mpi4py")
    script = "import staticgrad as sg; sg.distributed.size()"
    several = {**os.environ, "OMPI_COMM_WORLD_SIZE": "2"}
    refused = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=several)
    if "Open MPI" not in refused.stderr:  # which takes it for its own
        assert "mpi4py knows no other: start them with the mpiexec of its MPI" in refused.stderr
