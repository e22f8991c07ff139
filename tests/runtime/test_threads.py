"""Threads: the same bits for any number of them, forks, many callers at once, and what decides how work is cut."""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import random_graphs
from support.concurrency import in_threads
from support.nets import Training, lenet, mlp, resnet20, training
from support.sampling import relative_error
from support.selection import every_pair, slow
from support.targets import HERE

import staticgrad as sg
from staticgrad.compiler.kernels.nest import Access, Load, Nest, Store
from staticgrad.compiler.machine.target import TARGETS, Target, in_turns
from staticgrad.compiler.plans.chunks import MOST_CHUNKS, cut, unevenness, wanted_chunks
from staticgrad.compiler.plans.nest.facts import is_divisible
from staticgrad.compiler.plans.nest.planning import plan_nest
from staticgrad.compiler.steps import split, sweeps
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.runtime.parts import threads
from staticgrad.runtime.parts.locks import Lock

F32 = np.dtype(np.float32)
COUNTS = (2, 3, 8)
Array = np.ndarray[Any, np.dtype[Any]]
Declared = tuple[list[Tensor], dict[Tensor, Array]]

pytestmark = pytest.mark.skipif(not threads.native_threads(), reason="no POSIX threads here")


def normal(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


def fed(*shape: int, dtype: Any = np.float32) -> tuple[Tensor, Array]:
    return sg.placeholder(shape, sg.float64 if dtype == np.float64 else sg.float32), normal(*shape, dtype=dtype)


def product(a: tuple[int, ...], b: tuple[int, ...], **how: Any) -> Declared:
    (x, x_value), (y, y_value) = fed(*a, **how), fed(*b, **how)
    return [sg.matmul(x, y)], {x: x_value, y: y_value}


def turned_product() -> Declared:
    (x, x_value), (y, y_value), (c, c_value) = fed(300, 257), fed(300, 413), fed(413)
    z = sg.nn.relu(sg.matmul(sg.permute_dims(x, (1, 0)), y) + c)
    return [z, sg.permute_dims(sg.matmul(sg.permute_dims(y, (1, 0)), x), (1, 0))], {x: x_value, y: y_value, c: c_value}


def pointwise(function: Callable[[Tensor], Any], *shape: int, dtype: Any = np.float32) -> Declared:
    x, value = fed(*shape, dtype=dtype)
    found = function(x)
    return (found if isinstance(found, list) else [found]), {x: value}


def normed(x: Tensor) -> Tensor:
    centred = x - sg.mean(x, 1, keepdims=True)
    return centred / sg.sqrt(sg.mean(centred * centred, 1, keepdims=True) + 1e-5)


def normed_columns(x: Tensor) -> list[Tensor]:
    """As a batch norm over few channels: sums over long columns, then their variance, then what is stored."""
    mean = sg.mean(x, 0, keepdims=True)
    centred = x - mean
    variance = sg.mean(centred * centred, 0, keepdims=True)
    return [sg.nn.relu(centred * sg.rsqrt(variance + 1e-5)), mean, variance]


def picked(x: Tensor) -> Tensor:
    """Rows that are taken many times: their gradients meet in one address."""
    return sg.take(x, sg.constant(np.arange(4000) % 13), 0)


def convolved(x: tuple[int, ...], w: tuple[int, ...], **how: Any) -> Declared:
    (images, x_value), (weights, w_value), (bias, b_value) = fed(*x), fed(*w), fed(w[0])
    y = sg.nn.relu(sg.nn.conv2d(images, weights, bias, **how))
    return [y], {images: x_value, weights: 0.1 * w_value, bias: b_value}


DECLARED: dict[str, Callable[[], Declared]] = {
    "product": lambda: product((513, 700), (700, 600)),
    "product of doubles": lambda: product((200, 300), (300, 150), dtype=np.float64),
    "flat product": lambda: product((24, 700), (700, 900)),
    "deep product": lambda: product((40, 9000), (9000, 40)),
    "column": lambda: product((3000, 700), (700, 1)),
    "columns": lambda: product((3000, 700), (700, 3)),
    "row": lambda: product((1, 3000), (3000, 700)),
    "many products": lambda: product((64, 40, 50), (64, 50, 60)),
    "few products": lambda: product((3, 200, 150), (3, 150, 170)),
    "products of one": lambda: product((5, 200, 150), (1, 150, 170)),
    "turned": turned_product,
    "pointwise": lambda: pointwise(lambda x: sg.tanh(sg.exp(x) + x), 1000, 1003),
    "doubles": lambda: pointwise(lambda x: sg.sin(x), 3, 70001, dtype=np.float64),
    "softmax": lambda: pointwise(sg.nn.softmax, 700, 513),
    "normed": lambda: pointwise(normed, 600, 777),
    "normed columns": lambda: pointwise(normed_columns, 30011, 16),
    "one normed column": lambda: pointwise(normed_columns, 300007, 1),
    "three normed columns": lambda: pointwise(normed_columns, 100003, 3),
    "sums": lambda: pointwise(lambda x: [sg.sum(x, 0), sg.sum(x, 1), sg.sum(x), sg.max(x), sg.mean(x * x)], 1500, 777),
    "transposed": lambda: pointwise(lambda x: sg.permute_dims(x, (1, 0)) * 2.0, 1040, 999),
    "picked": lambda: pointwise(picked, 13, 300),
    "images": lambda: convolved((20, 16, 20, 22), (24, 16, 3, 3), padding=1),
    "one image": lambda: convolved((1, 8, 90, 100), (40, 8, 3, 3), padding=1),
    "three strided images": lambda: convolved((3, 8, 91, 70), (40, 8, 3, 3), stride=2, padding=1),
    "strided images": lambda: convolved((12, 16, 33, 33), (32, 16, 3, 3), stride=2, padding=1),
    "depthwise": lambda: convolved((10, 48, 40, 40), (48, 1, 3, 3), padding=1, groups=48),
    "grouped": lambda: convolved((9, 24, 30, 30), (36, 8, 3, 3), padding=1, groups=3),
    "dilated": lambda: convolved((9, 12, 30, 30), (40, 12, 3, 2), dilation=2),
    "pixels": lambda: convolved((16, 64, 14, 14), (70, 64, 1, 1)),
    "pixels of one image": lambda: convolved((1, 64, 40, 40), (70, 64, 1, 1)),
    "many filters": lambda: convolved((6, 96, 8, 8), (150, 96, 3, 3), padding=1),
    "turned axes": lambda: pointwise(lambda x: sg.exp(sg.permute_dims(x, (2, 0, 1))), 33, 128, 77),
}  # fmt: skip


def results(declare: Callable[[], Declared], count: int) -> tuple[list[Array], int]:
    """The values, and for how many threads the program was compiled."""
    with Graph() as graph:
        fetches, feeds = declare()
        fetches = [*fetches, *sg.gradients(sum(sg.sum(y * y * y) for y in fetches), list(feeds))]
        with sg.Session(graph, num_threads=count) as session:
            exe = session.compile(fetches, list(feeds))
            exe(*feeds.values())
            return exe(*feeds.values()), exe._programs.native().program.workers


def run_chunks(count: int, part: Callable[[int, int, int], None], chunks: int) -> None:
    """Have a pool of so many threads run a part that is written in Python: of a table, a chunk and a worker."""
    address = threads.pool_address(count)
    run_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    run = run_type(int(threads.pools()[count].words[threads.PoolWord.RUN]))
    native = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(part)
    run(address, ctypes.cast(native, ctypes.c_void_p), None, chunks)


def test_each_thread_takes_its_own_share_of_the_chunks_in_order() -> None:
    """So that it finds in its own caches what it has written before."""
    both = threading.Barrier(2)
    taken: tuple[list[int], list[int]] = ([], [])

    def note(_: int, chunk: int, worker: int) -> None:
        taken[worker].append(chunk)
        both.wait(60)

    run_chunks(2, note, 10)
    assert taken == ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9])


def test_threads_that_sleep_wake_each_other() -> None:
    """The caller wakes two of seven, and all come, of which each has a chunk that waits for the others."""
    all_here = threading.Barrier(8)
    run_chunks(8, lambda *_: None, 8)
    words = threads.pools()[8].words
    while words[threads.PoolWord.ASLEEP] < 7:
        os.sched_yield()
    taken: list[int] = []

    def note(_: int, chunk: int, worker: int) -> None:
        all_here.wait(60)
        taken.append(worker)

    run_chunks(8, note, 8)
    assert sorted(taken) == list(range(8))


@pytest.mark.parametrize("count", [1, 2, 3, 8, 50])
def test_every_chunk_is_done_once(count: int) -> None:
    """Also where there are fewer chunks than threads, or a share is empty."""
    done: list[int] = []
    run_chunks(8, lambda _, chunk, __: done.append(chunk), count)
    assert sorted(done) == list(range(count))


@pytest.mark.share(3)
@pytest.mark.parametrize(("name", "target", "count"), every_pair(list(DECLARED), HERE, COUNTS))
def test_kernels_give_the_same_bits(name: str, target: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    want, _ = results(DECLARED[name], 1)
    if count == 2:
        monkeypatch.setenv("STATICGRAD_MEMORY", "poison")
    got, workers = results(DECLARED[name], count)
    assert workers == count, "nothing in this program is shared: make it larger"
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.tobytes() == b.tobytes(), f"result {number} with {count} threads"


@pytest.mark.share(2)
@pytest.mark.parametrize("name", DECLARED)
def test_kernels_equal_the_interpreter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    got, _ = results(DECLARED[name], 1)  # whose bits are those of any number of threads
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    with Graph() as graph:
        fetches, feeds = DECLARED[name]()
        fetches = [*fetches, *sg.gradients(sum(sg.sum(y * y * y) for y in fetches), list(feeds))]
        want = sg.Session(graph).run(fetches, feeds)
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        scale = float(np.abs(b).max()) + 1e-6
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4 * scale, err_msg=f"result {number}")


def adam() -> Any:
    return sg.optim.Adam(lr=1e-3)


def momentum() -> Any:
    return sg.optim.SGD(lr=0.01, momentum=0.9)


NETS: dict[str, Callable[[], Training]] = {
    "mlp": lambda: training(lambda: mlp(784, 512, 256, 10), (128, 784), adam),
    "lenet": lambda: training(lenet, (64, 1, 28, 28), momentum),
    "resnet20": lambda: training(resnet20, (8, 3, 32, 32), momentum),
}


def train(name: str, count: int, steps: int = 3) -> list[Array]:
    """The losses, and every variable at the end."""
    with Graph():
        net = NETS[name]()
        with sg.Session(net.graph, num_threads=count) as session:
            step = session.compile([net.loss, net.train], list(net.feeds))
            losses = [step(*net.feeds.values())[0] for _ in range(steps)]
            state = [session.get(node.outputs[0]) for node in net.graph.nodes if node.op.name == "variable"]
    return [*losses, *state]


@pytest.mark.parametrize(("name", "count"), [(n, c) if i == k else slow(n, c) for i, n in enumerate(NETS)
                                             for k, c in enumerate(COUNTS)])  # fmt: skip
def test_training_gives_the_same_bits(name: str, count: int) -> None:
    for number, (a, b) in enumerate(zip(train(name, count), train(name, 1), strict=True)):
        assert a.tobytes() == b.tobytes(), f"value {number} with {count} threads"


LARGE = ((240, 360), (360,), (240, 1), (1, 360), (3, 240, 360), (2, 3, 120, 120), (500,), (240, 240), (30, 1700))


def test_random_graphs_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_graphs, "SHAPES", LARGE)
    shared = 0
    for seed in range(3000, 3008):
        found = []
        for count in (1, 2):
            case = random_graphs.random_graph(seed)
            with case.graph, np.errstate(all="ignore"):
                fetches = [case.results, sg.gradients(case.loss, case.leaves, unconnected_gradients="zero")]
                exe = sg.Session(case.graph, num_threads=count).compile(fetches, list(case.feeds))
                found.append([x.tobytes() for x in sg.nest.flatten(exe(*case.feeds.values()))])
                shared += exe._programs.native().program.workers == 2
        assert found[0] == found[1], f"seed {seed}"
    assert shared >= 4


# -- the pool ---------------------------------------------------------------------------------------------------------


def shared_executable(count: int = 2) -> tuple[Any, Array, Array]:
    """A program that threads share, a feed, and its result."""
    with Graph() as graph:
        x = sg.placeholder((700, 600))
        y = sg.nn.softmax(sg.matmul(sg.exp(x * 0.01), sg.permute_dims(x, (1, 0))))
        exe = sg.Session(graph, num_threads=count).compile(y, [x])
    value = normal(700, 600)
    return exe, value, exe(value)


def test_a_forked_child_goes_on() -> None:
    exe, value, want = shared_executable()
    for _ in range(3):
        child = os.fork()
        if child == 0:
            os._exit(0 if all(exe(value).tobytes() == want.tobytes() for _ in range(3)) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert exe(value).tobytes() == want.tobytes()


def test_a_fork_in_the_middle_of_a_run() -> None:
    """The parent's other thread has the pool, and locks in it, when the child begins."""
    exe, value, want = shared_executable()
    going_on = threading.Event()

    def keep_running() -> None:
        while not going_on.is_set():
            exe(value)

    thread = threading.Thread(target=keep_running)
    thread.start()
    try:
        mine, *_ = shared_executable()
        for _ in range(5):
            child = os.fork()
            if child == 0:
                os._exit(0 if mine(value).tobytes() == want.tobytes() else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        going_on.set()
        thread.join()


def test_many_callers_at_once() -> None:
    made = [shared_executable(count) for count in (2, 2, 3, 4)]
    value, want = made[0][1], made[0][2]
    wrong: list[int] = []

    def call(number: int) -> None:
        exe = made[number % len(made)][0]
        for _ in range(8):
            if exe(value).tobytes() != want.tobytes():
                wrong.append(number)

    in_threads(8, call)
    assert not wrong


@pytest.mark.skipif(not Lock().is_native, reason="programs that poll run on one thread here")
def test_the_interpreter_ends_while_workers_wait() -> None:
    text = (
        "import numpy as np, staticgrad as sg\n"
        "x = sg.placeholder((600, 600)); y = sg.matmul(x, x)\n"
        "s = sg.Session(num_threads=4)\n"
        "for _ in range(3): s.run(y, {x: np.ones((600, 600), np.float32)})\n"
        "from staticgrad.runtime.parts.threads import pools\n"
        "assert list(pools()) == [4]\n"
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_ends_the_loop_and_leaves_the_pool_usable() -> None:
    text = (
        "import os, signal, threading, numpy as np, staticgrad as sg\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job begins without
        "x = sg.placeholder((700, 700)); y = sg.matmul(sg.matmul(x, x), x)\n"
        "exe = sg.Session(num_threads=2).compile(y, [x]); value = np.ones((700, 700), np.float32)\n"
        "want = exe(value).tobytes()\n"
        "threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "try:\n"
        "    while True: exe(value)\n"
        "except KeyboardInterrupt: print('interrupted')\n"
        "assert all(exe(value).tobytes() == want for _ in range(3))\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


def native_thread_ids() -> set[int]:
    return set(map(int, os.listdir("/proc/self/task")))


def processor_of(thread: int) -> int:
    """The processor that a thread runs on or ran on last."""
    with open(f"/proc/self/task/{thread}/stat", encoding="ascii") as file:
        return int(file.read().rpartition(")")[2].split()[36])


@pytest.mark.skipif(sys.platform != "linux" or os.cpu_count() == 1, reason="needs Linux and two processors")
def test_a_worker_does_not_stay_on_the_processor_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_TIERS", "0")  # the thread that makes optimised code is no worker, and ends
    free = os.sched_getaffinity(0)
    if len(free) < 2:
        pytest.skip("this process may use one processor only")
    ours = min(free)
    before = native_thread_ids()
    pool = 5  # of its own
    try:
        os.sched_setaffinity(0, {ours})  # a worker that is made now begins here
        exe, value, want = shared_executable(pool)
        workers = native_thread_ids() - before
        if not workers:
            pytest.skip("the pool was there already")
        assert {processor_of(worker) for worker in workers} == {ours}
        for worker in workers:
            os.sched_setaffinity(worker, free)
        for _ in range(50):
            assert exe(value).tobytes() == want.tobytes()
        places = [processor_of(worker) for worker in workers]
        assert any(place != ours for place in places)
        assert all(os.sched_getaffinity(worker) == free for worker in workers)
    finally:
        os.sched_setaffinity(0, free)


def test_the_switch_sets_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    with Graph() as graph:
        x = sg.placeholder((700, 600))
        y = sg.exp(x)
        monkeypatch.setenv("STATICGRAD_THREADS", "3")
        assert sg.Session(graph).num_threads == 3
        assert sg.Session(graph).compile(y, [x])._programs.native().program.workers == 3
        assert sg.Session(graph, num_threads=1).compile(y, [x])._programs.native().program.workers == 1
        monkeypatch.delenv("STATICGRAD_THREADS")
        assert sg.Session(graph).num_threads >= 1


@pytest.mark.parametrize(
    "function", [lambda x: sg.sort(x, axis=1), lambda x: sg.nn.softmax(sg.sin(x), 1)], ids=["routines", "nest"]
)
def test_fewer_chunks_than_threads_do_not_share_scratch_memory(function: Callable[[Tensor], Tensor]) -> None:
    """Any worker may take a chunk, also the one with the highest number: it wrote behind the arena."""

    def scratch(count: int) -> int:
        with sg.Graph() as g:
            x = sg.placeholder((7, 1003 * 3))
            y = function(x)
        with sg.Session(g, num_threads=count) as sess:
            memory = sess.compile(y, [x]).memory
        return sum(buffer.nbytes for buffer in memory.buffers if "scratch" in buffer.reason)

    assert scratch(16) == 16 * scratch(1) > 0


def test_small_programs_are_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATICGRAD_TARGET", raising=False)
    with Graph() as graph:
        x = sg.placeholder((64, 64))
        exe = sg.Session(graph, num_threads=8).compile(sg.nn.softmax(sg.matmul(x, x)), [x])
    assert exe._programs.native().program.workers == 1
    assert "@parallel" not in exe.text("llvm")


@pytest.mark.parametrize("units", [1, 2, 7, 16, 33, 64, 100, 784, 4000])
def test_chunks_cover_the_work_and_come_out_even(units: int) -> None:
    for wanted in range(1, 65):
        size, count = cut(units, wanted)
        assert (count - 1) * size < units <= count * size
        assert min(units, wanted) // 2 <= count <= max(MOST_CHUNKS, units if wanted == 1 else 1)
        assert unevenness(count, size / units) <= unevenness(
            -(-units // -(-units // wanted)), -(-units // wanted) / units
        )
    assert cut(units, 1) == (units, 1)
    assert cut(64, 10) == (4, 16)
    assert cut(64, 5, 10) == (8, 8)


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_less_work_is_shared_in_the_body_of_a_loop(target: Target) -> None:
    """Where threads wait without sleeping, from kernel to kernel."""
    seconds = 0.6 * target.machine.worth_sharing_seconds
    assert wanted_chunks(seconds, target) == 1
    assert wanted_chunks(seconds, in_turns(target)) > 1


def test_how_work_is_cut_does_not_depend_on_the_threads() -> None:
    def text(count: int) -> str:
        with Graph() as graph:
            fetches, feeds = DECLARED["pointwise"]()
            llvm: str = sg.Session(graph, num_threads=count).compile(fetches, list(feeds)).text("llvm")
        return llvm

    assert text(1) == text(2) == text(8)


# -- reductions that are split ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1_000_003,), (700_000,), (40_000, 16), (3, 200_003), (4, 50_000, 3)])
@pytest.mark.parametrize("kind", ["sum", "max", "prod", "any"])
def test_long_reductions_are_split(shape: tuple[int, ...], kind: str) -> None:
    value = normal(*shape, dtype=np.float64)
    axis = 0 if len(shape) == 1 or shape[1] == 16 else 1
    with Graph() as graph:
        x = sg.placeholder(shape, sg.float64)
        scaled = 1.0 + x * 1e-4 if kind == "prod" else x
        y = sg.any(scaled > 4.9, axis) if kind == "any" else getattr(sg, kind)(scaled, axis)
        exe = sg.Session(graph, num_threads=2).compile([y, sg.sum(sg.exp(x), axis) * 2.0], [x])
        got = exe(value)
    assert "_parts" in exe.text("kernels")
    scaled_value = 1.0 + value * 1e-4 if kind == "prod" else value
    want = (value > 4.9).any(axis) if kind == "any" else getattr(np, kind)(scaled_value, axis)
    np.testing.assert_allclose(got[0], want, rtol=1e-11)
    np.testing.assert_allclose(got[1], np.exp(value).sum(axis) * 2.0, rtol=1e-12)


def test_a_split_reduction_that_counts_along_what_is_split() -> None:
    count = 400_007
    with Graph() as graph:
        x = sg.placeholder((count,), sg.float64)
        weights = sg.astype(sg.arange(count), sg.float64)
        exe = sg.Session(graph, num_threads=2).compile(sg.sum(sg.sin(x) * weights), [x])
        value = normal(count, dtype=np.float64)
        got = exe(value)
    assert "_parts" in exe.text("kernels")
    np.testing.assert_allclose(got, (np.sin(value) * np.arange(count)).sum(), rtol=1e-10)


def interpreted(graph: Graph, fetches: list[Tensor], feeds: dict[Tensor, Array]) -> list[Array]:
    with pytest.MonkeyPatch.context() as patch, sg.Session(graph) as session:
        patch.setenv("STATICGRAD_BACKEND", "reference")
        return session.run(fetches, feeds)


def narrow_sums(kind: str, x: Tensor) -> list[Tensor]:
    """Of a light and a heavier body, one of them beside what is stored of the elements."""
    if kind == "any":
        return [sg.any(x > 2.0, 0)]
    reduce = getattr(sg, kind)
    stored = 1.0 + x * 0.001
    return [reduce(sg.abs(x) ** 0.001, 0), stored, reduce(stored, 0)]


@pytest.mark.share(3)
@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("kind", ["sum", "max", "min", "prod", "any"])
def test_rows_of_few_columns_are_reduced_in_phases(kind: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    phased = 0
    for columns in (2, 3, 5, 8, 10, 15, 33):
        for rows in (0, 1, 31, 1029, 9001 if columns < 6 else 2049):
            value = normal(rows, columns, dtype=np.float64 if columns % 2 else np.float32)
            if rows == 1029:
                value[::301, 1] = np.nan
            if kind in ("max", "min") and rows == 0:
                continue
            with Graph() as graph:
                x = sg.placeholder(value.shape, sg.float64 if columns % 2 else sg.float32)
                results = narrow_sums(kind, x)
            want = interpreted(graph, results, {x: value})
            exe = sg.Session(graph, num_threads=1).compile(results, [x])
            got = exe(value)
            phased += "_parts" in exe.text("kernels")
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, **({"rtol": 1e-11} if columns % 2 else {"rtol": 1e-4, "atol": 1e-3}))
            shared = sg.Session(graph, num_threads=3).compile(results, [x])(value)
            assert [a.tobytes() for a in shared] == [a.tobytes() for a in got]
    assert phased > 4


@pytest.mark.parametrize("target", HERE)
def test_phases_of_rows_that_lie_apart(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second row, rows of every second column, columns of matrices, rows beside a value of their column."""
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    value = normal(4, 1031, 6, dtype=np.float64)
    with Graph() as graph:
        x = sg.placeholder(value.shape, sg.float64)
        m = sg.mean(x[0], 0)
        results = [
            sg.sum(x, 1), sg.sum(x, 2), sg.max(x, (0, 1)), sg.sum(x[:, ::2], 1), sg.sum(x[..., ::2], 1),
            sg.sum(x[0] * x[1] + x[2], 0), sg.sum((x[0] - m) ** 2, 0), sg.sum(sg.flip(x, (1,)), 1),
            sg.sum(x * sg.astype(sg.arange(1031), sg.float64)[:, None], 1), sg.mean(x[1:3, 5:, :], 1),
        ]  # fmt: skip
    want = interpreted(graph, results, {x: value})
    got = sg.Session(graph).run(results, {x: value})
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_padded_rows_are_not_lost_when_a_long_sum_is_split() -> None:
    first, last = normal(24, 4096, dtype=np.float64), normal(4096, dtype=np.float64)
    with Graph() as graph:
        x, y = sg.placeholder(first.shape, sg.float64), sg.placeholder(last.shape, sg.float64)
        z = sg.sin(sg.pad(x, ((0, 1), (0, 0))) + sg.pad(y[None], ((24, 0), (0, 0)))) * 2.0
        exe = sg.Session(graph).compile([z, sg.sum(z)], [x, y])
        got = exe(first, last)
    want = np.sin(np.concatenate([first, last[None]])) * 2.0
    np.testing.assert_allclose(got[0], want, rtol=1e-12)
    np.testing.assert_allclose(got[1], want.sum(), rtol=1e-10)


@pytest.mark.parametrize("count", [400_007, 400_384])
def test_a_split_sum_beside_an_update_of_state_in_place(count: int) -> None:
    target = normal(count, dtype=np.float64)
    with Graph() as graph:
        w = sg.Variable(np.zeros(count))
        t = sg.placeholder((count,), sg.float64)
        (slope,) = sg.gradients(sg.sum((w - t) ** 2), [w])
        train = sg.optim.SGD(lr=0.1, momentum=0.9).apply_gradients([(slope, w)])
        session = sg.Session(graph, num_threads=2)
        exe = session.compile([sg.sum(slope * slope), train], [t])
    value, velocity = np.zeros(count), np.zeros(count)
    for _ in range(2):
        want = 2 * (value - target)
        np.testing.assert_allclose(exe(target)[0], (want * want).sum(), rtol=1e-12)
        velocity = 0.9 * velocity + want
        value -= 0.1 * velocity
    np.testing.assert_allclose(session.get(w), value, rtol=1e-12)
    assert "_parts" in exe.text("kernels")


def test_random_graphs_with_every_reduction_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_CACHE", "0")
    for module in (split, sweeps):
        monkeypatch.setattr(module, "wanted_chunks", lambda *_: 1000)
        monkeypatch.setattr(module, "FEWEST_PARTS", 2)
    monkeypatch.setattr(split, "MOST_PARTS", 3)
    for seed in range(30):
        case = random_graphs.random_graph(seed)
        with case.graph:
            fetches = [case.results, sg.gradients(case.loss, case.leaves, unconnected_gradients="zero"), case.train]
        found = []
        for backend in ("reference", "compiled"):
            monkeypatch.setenv("STATICGRAD_BACKEND", backend)
            with np.errstate(all="ignore"), sg.Session(case.graph) as session:
                results = sg.nest.flatten(session.run(fetches, case.feeds))
                found.append([*results, *map(session.get, case.graph.variables.values())])
        for want, got in zip(*found, strict=True):
            assert (want is None and got is None) or relative_error(got, want, floor=1e-4) <= 1e-8, f"seed {seed}"


# -- nests of several sweeps ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(40_000, 12), (30_011, 3), (250_007, 1), (20, 70, 30, 7)])
@pytest.mark.parametrize("target", HERE)
def test_sweeps_over_few_long_rows_are_separated(
    target: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    value, axes = normal(*shape, dtype=np.float64), tuple(range(len(shape) - 1))
    with Graph() as graph:
        x = sg.placeholder(shape, sg.float64)
        mean = sg.mean(x, axes, keepdims=True)
        centred = x - mean
        variance = sg.mean(centred * centred, axes, keepdims=True)
        largest = sg.max(sg.abs(centred) * sg.rsqrt(variance + 1e-5), axes, keepdims=True)
        fetches = [centred / sg.sqrt(variance + 1e-5) / largest, mean, variance, largest]
        exe = sg.Session(graph, num_threads=2).compile(fetches, [x])
        got = exe(value)
    assert exe.text("kernels").count("_sweep") >= 3
    mean_value, spread = value.mean(axes, keepdims=True), value.var(axes, keepdims=True)
    scaled = (value - mean_value) / np.sqrt(spread + 1e-5)
    top = np.abs(scaled).max(axes, keepdims=True)
    want = [scaled / top, mean_value, spread, top]
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_separated_sweeps_write_in_place() -> None:
    """Running statistics are loaded and stored by the sweep that knows the batch's; the state itself by the last."""
    value = normal(50_000, 8)
    with Graph() as graph:
        x = sg.placeholder((50_000, 8))
        running = sg.Variable(np.ones((1, 8), np.float32), name="running")
        whole = sg.Variable(value, name="whole")
        mean = sg.mean(whole + x, 0, keepdims=True)
        centred = whole + x - mean
        spread = sg.mean(centred * centred, 0, keepdims=True)
        updates = [sg.assign(running, running * 0.5 + mean * 0.5), sg.assign(whole, centred * sg.rsqrt(spread + 1.0))]
        session = sg.Session(graph, num_threads=2)
        exe = session.compile([spread, *updates], [x])
        exe(value)
    assert "_sweep" in exe.text("kernels")
    want = 2 * value.astype(np.float64)
    np.testing.assert_allclose(session.get(running), 0.5 + 0.5 * want.mean(0, keepdims=True), rtol=1e-5, atol=1e-6)
    normed_value = (want - want.mean(0)) / np.sqrt(want.var(0) + 1.0)
    np.testing.assert_allclose(session.get(whole), normed_value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(300, 4000), (4000, 16), (64, 3)])
def test_sweeps_stay_together_where_rows_or_work_suffice(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STATICGRAD_TARGET", raising=False)
    axis = 1 if shape[0] == 300 else 0
    with Graph() as graph:
        x = sg.placeholder(shape)
        centred = x - sg.mean(x, axis, keepdims=True)
        y = centred * sg.mean(centred * centred, axis, keepdims=True)
        exe = sg.Session(graph, num_threads=2).compile(y, [x])
    assert "_sweep" not in exe.text("kernels")


# -- what may be cut --------------------------------------------------------------------------------------------------


def adding(outer: tuple[int, ...], strides: tuple[int, ...]) -> Nest:
    """``out[Σ stride·index] += x[index]``"""
    packed = tuple(int(np.prod(outer[d + 1 :])) for d in range(len(outer)))
    body = (Load(Access(0, 0, packed), F32), Store(Access(1, 0, strides), 0, "add"))
    return Nest(outer, (), (F32, F32), body)


@pytest.mark.parametrize(
    ("outer", "strides", "divisible"),
    [
        ((5, 7), (7, 1), (True, True)),
        ((5, 7), (0, 1), (False, True)),
        ((5, 7), (1, 1), (False, False)),  # a window that moves by one
        ((5, 3), (3, 1), (True, True)),
        ((5, 3), (2, 1), (False, False)),  # windows of three that move by two
        ((4, 5, 3), (20, 2, 1), (True, False, False)),
        ((4, 5, 3), (-20, 2, 1), (True, False, False)),
        ((4, 1, 3), (3, 2, 1), (True, True, True)),
    ],
)
def test_additions_that_meet_are_not_cut_apart(
    outer: tuple[int, ...], strides: tuple[int, ...], divisible: tuple[bool, ...]
) -> None:
    nest = adding(outer, strides)
    met: list[set[int]] = []
    addresses = np.zeros(outer, np.int64)
    for d, stride in enumerate(strides):
        addresses += np.arange(outer[d]).reshape([-1 if k == d else 1 for k in range(len(outer))]) * stride
    for d in range(len(outer)):
        chunks = [set(np.take(addresses, i, d).ravel().tolist()) for i in range(outer[d])]
        apart = sum(map(len, chunks)) == len(set().union(*chunks))
        assert is_divisible(nest, d) == divisible[d]
        assert apart or not divisible[d]
        met += chunks


def test_a_nest_whose_additions_all_meet_is_not_shared() -> None:
    sharable = plan_nest(adding((3000, 700), (700, 1)), TARGETS["generic"])
    meeting = plan_nest(adding((3000, 700), (1, 1)), TARGETS["generic"])
    assert sharable is not None
    assert sharable.share is not None
    assert meeting is not None
    assert meeting.share is None


def test_workers_have_stacks_of_their_own_size() -> None:
    """Kernels pack up to a mebibyte there, and systems may give new threads less."""
    text = """
import sys, threading
import numpy as np
import staticgrad as sg

with sg.Graph() as g:
    a, b = sg.placeholder((40, 300, 600)), sg.placeholder((40, 600, 600))
    y = a @ b.mT
exe = sg.Session(g, num_threads=4).compile(y, [a, b])
x = np.random.default_rng(0).normal(size=(40, 600, 600)).astype(np.float32)
failed = []

def call():
    expected = x[:, :300] @ x.swapaxes(1, 2)
    for _ in range(5):
        if not np.allclose(exe(x[:, :300], x), expected, rtol=1e-3, atol=1e-3):
            failed.append(1)

threading.stack_size(8 << 20)
caller = threading.Thread(target=call)
caller.start()
caller.join()
sys.exit(len(failed))
"""
    short = f"ulimit -S -s 256 && exec {shlex.quote(sys.executable)} -c {shlex.quote(text)}"
    done = subprocess.run(["bash", "-c", short], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
