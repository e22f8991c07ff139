"""Exceptions at any bytecode, signals in the middle of a run, forks beside one: nobody hangs, and state is whole."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from source_tree import TESTS
from support import random_graphs
from support.concurrency import in_threads
from support.injection import ends_with_injection
from support.sampling import relative_error
from support.selection import slow

import staticgrad as sg
from staticgrad.base import collection, recent
from staticgrad.compiler.emit import entry, loops, polls
from staticgrad.compiler.machine.machine import RATES
from staticgrad.compiler.program import step
from staticgrad.runtime.parts import interrupts, locks, results
from staticgrad.runtime.parts.locks import Lock, LockWord
from staticgrad.runtime.parts.machinery import once
from staticgrad.runtime.running import calling, entries, frames, native, reference, state
from staticgrad.runtime.session import calls, checks, executable, fetched, programs, session, tape, tapes

FILES = frozenset(
    m.__file__ or ""
    for m in (
        calls, checks, entries, executable, fetched, frames, locks, native, programs, recent, reference, results,
        session, state, tape, tapes,
    )
)  # fmt: skip
HANG = 120  # seconds after which something that should have ended counts as hanging
Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(not Lock().is_native, reason="locks are Python's own here")


# -- an exception at every bytecode -----------------------------------------------------------------------------------


class Counting:
    """A session whose runs add 1 to a variable of two elements and draw numbers, and what its state is."""

    def __init__(self, size: int = 2) -> None:
        with sg.Graph() as graph:
            self.x = sg.placeholder((size,), name="x")
            self.w = sg.Variable(np.zeros(size, np.float32), name="w")
            self.v = sg.Variable(np.zeros(size, np.float32), name="v")
            self.y = sg.sum(self.x * self.w * self.w)
            self.step = sg.group(sg.assign(self.w, self.w + 1), sg.assign(self.v, self.v + 1))
            self.noise = sg.sum(sg.random.uniform((2,)))
        self.session = sg.Session(graph, num_threads=1)
        self.ones = np.ones(size, np.float32)

    def state(self) -> tuple[float, float, int, int, float | None]:
        """Two variables, how often they were written, runs that drew, and a gradient."""
        w, v = self.session.get(self.w), self.session.get(self.v)
        gradient = self.session.grad(self.w)
        assert np.ptp(w) == np.ptp(v) == 0
        store = self.session.store
        return w[0], v[0], store.writes, store.runs_drawn, None if gradient is None else float(gradient[0])

    def works(self) -> None:
        """Another thread can run, write, and take a tape."""

        def work(_: int) -> None:
            self.session.set(self.v, self.session.get(self.v))
            self.session.run([self.y, self.noise], {self.x: self.ones})

        in_threads(1, work)


def actions(c: Counting) -> dict[str, Callable[[], object]]:
    s, feeds = c.session, {c.x: c.ones}
    step, noisy = s.compile([c.y, c.step], [c.x]), s.compile([c.y, c.step, c.noise], [c.x])
    other = np.full_like(c.ones, 3)
    return {
        "call": lambda: step(c.ones),
        "call with an array to convert": lambda: step(list(c.ones)),
        "call that draws": lambda: noisy(list(c.ones)),
        "run": lambda: s.run([c.y, c.step], feeds),
        "set": lambda: s.set(c.w, other),
        "get": lambda: s.get(c.w),
        "zero_grad": s.zero_grad,
        "forward and backward": lambda: s.forward(c.y, feeds).backward(c.y),
    }


def changes(before: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    """The state after an action that has happened."""
    w, v, writes, drawn, gradient = before
    if "call" in name or name == "run":
        return w + 1, v + 1, writes + 2, drawn + ("draws" in name), gradient
    if name == "set":
        return 3.0, v, writes + 1, drawn, gradient
    if name == "zero_grad":
        return w, v, writes, drawn, None
    if name == "forward and backward":
        return w, v, writes, drawn, (gradient or 0.0) + 2 * w
    return before


@pytest.mark.parametrize("releases", [False, True])
@pytest.mark.parametrize("backend", ["native", "reference"])
def test_an_exception_at_any_bytecode_loses_no_lock_and_leaves_state_whole(
    backend: str, releases: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend == "reference":
        if releases:
            pytest.skip("the interpreter keeps Python's lock")
        monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    if releases:
        monkeypatch.setattr(calling, "KEEP_LOCK_BELOW", 0.0)
    c, settings = Counting(), np.geterr()
    stride = 1 if backend == "native" else 5  # the interpreter is slow beside a trace function
    for name, action in actions(c).items():
        action()
        for at in range(0, 100_000, stride):
            if name == "zero_grad" and c.session.grad(c.w) is None:
                actions(c)["forward and backward"]()
            before = c.state()
            went_on = ends_with_injection(action, at, FILES)
            after = c.state()
            assert after in (before, changes(before, name)), f"{name}, bytecode {at}: {before} -> {after}"
            if at % (16 * stride) == 0:
                c.works()
            assert c.session.store.lock.words[LockWord.GATE] == 0, f"{name}, bytecode {at}"
            assert c.session.compiler.lock.words[LockWord.GATE] == 0, f"{name}, bytecode {at}"
            if not went_on:
                break
        c.works()
    assert np.geterr() == settings


def test_an_exception_at_any_bytecode_spends_a_tape_with_its_gradients_or_not_at_all() -> None:
    """Where the gradients were added the tape is spent; where they were not its values are as they were."""
    c = Counting(4)
    feeds = {c.x: c.ones}
    c.session.run(c.step)
    c.session.forward(c.y, feeds).backward(c.y)
    for at in range(100_000):
        c.session.zero_grad()
        held = c.session.forward(c.y, feeds)
        went_on = ends_with_injection(lambda held=held: held.backward(c.y), at, FILES)  # type: ignore[misc]
        if c.session.grad(c.w) is None:
            held.backward(c.y)
        else:
            with pytest.raises(sg.BuffersFreedError):
                held.backward(c.y)
        np.testing.assert_array_equal(c.session.grad(c.w), 2 * c.ones)
        if not went_on:
            break


@pytest.mark.filterwarnings("ignore::staticgrad.GrowthWarning")
def test_an_exception_during_the_compilation_of_a_program_leaves_the_session_able_to_compile_it() -> None:
    c = Counting()
    c.session.run(c.y, {c.x: c.ones})
    for at in range(100_000):
        with c.session.graph:
            fetch = sg.sum(c.x * float(at))

        def compiled(fetch: sg.Tensor = fetch) -> None:
            c.session.compile(fetch, [c.x])(c.ones)

        went_on = ends_with_injection(compiled, 67 * at, FILES)
        assert c.session.compiler.lock.words[LockWord.GATE] == 0
        assert gc.isenabled()
        in_threads(1, lambda _, fetch=fetch: c.session.run(fetch, {c.x: c.ones}))  # type: ignore[misc]
        if not went_on:
            break


def test_an_exception_as_garbage_collection_is_held_back_leaves_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    disable = gc.disable

    def interrupted() -> None:
        disable()
        raise KeyboardInterrupt

    monkeypatch.setattr(gc, "disable", interrupted)
    with pytest.raises(KeyboardInterrupt), collection.collection_held():
        pass
    assert gc.isenabled()


# -- the lock ---------------------------------------------------------------------------------------------------------


def test_a_lock_keeps_writers_apart_lets_readers_in_together_and_wakes_who_waits() -> None:
    lock = Lock()
    inside, most, together = [0, 0], [0, 0], threading.Barrier(2, timeout=HANG)

    def meets() -> None:
        inside[0] += 1
        together.wait()  # both readers are inside, or this never ends
        most[0] = max(most[0], inside[0])
        together.wait()
        inside[0] -= 1

    def reads() -> None:
        assert not inside[1]

    def writes() -> None:
        inside[1] += 1
        most[1] = max(most[1], 10 * inside[0] + inside[1])
        lock.exclusive(lock.brief, lambda: None)  # the same thread may take it again
        inside[1] -= 1

    in_threads(2, lambda _: lock.shared(meets))

    def work(number: int) -> None:
        for _ in range(30):
            if number < 2:
                lock.shared(reads)
            else:
                lock.exclusive(writes)

    in_threads(4, work)
    assert most == [2, 1]
    assert is_free(lock)


def is_free(lock: Lock) -> bool:
    return not any(
        lock.words[word] for word in (LockWord.OWNER, LockWord.DEPTH, LockWord.GATE, LockWord.READERS, LockWord.WAITERS)
    )


def in_turn(lock: Lock, *held: Callable[..., Any]) -> list[int]:
    """The numbers of threads in the order in which they get the lock, each of which begins to wait when those before it
    are waiting, while another thread holds it."""
    turns: list[int] = []
    inside, go_on = threading.Event(), threading.Event()

    def keep() -> None:
        inside.set()
        assert go_on.wait(HANG)

    threads = [threading.Thread(target=lock.exclusive, args=(keep,), daemon=True)]
    threads += [threading.Thread(target=hold, args=(turns.append, i), daemon=True) for i, hold in enumerate(held)]
    for waiting, thread in enumerate(threads):
        thread.start()
        assert inside.wait(HANG)
        while lock.words[LockWord.WAITERS] < waiting:
            pass
    go_on.set()
    for thread in threads:
        thread.join(HANG)
    assert is_free(lock)
    return turns


def test_threads_get_a_lock_in_the_order_in_which_they_began_to_wait() -> None:
    lock = Lock()
    assert in_turn(lock, *[lock.exclusive, lock.brief, lock.shared] * 3) == list(range(9))


def test_a_writer_does_not_overtake_one_that_waits() -> None:
    lock, turns, inside = Lock(), [], threading.Event()

    def first() -> None:
        inside.set()
        while not lock.words[LockWord.WAITERS]:
            pass
        turns.append("first")

    def again() -> None:
        lock.exclusive(first)
        lock.exclusive(turns.append, "first again")

    thread = threading.Thread(target=again, daemon=True)
    thread.start()
    assert inside.wait(HANG)
    lock.exclusive(turns.append, "second")
    thread.join(HANG)
    assert turns == ["first", "second", "first again"]


def wake_and_let_look(lock: Lock) -> None:
    """In a reader: who waits wakes; other threads run while one comes and goes."""
    lock.shared(int)
    in_threads(1, lambda _: None)


def test_readers_that_come_again_and_again_let_a_writer_in_that_waits() -> None:
    """Two readers of which one is always inside: a writer gets in only if they let it."""
    lock, most, turns, inside, started = Lock(), 40, [0], [0], threading.Event()
    waited: list[int] = []

    def overlaps() -> None:
        turns[0] += bool(lock.words[LockWord.WAITERS])
        inside[0] += 1
        started.set()
        for _ in range(50):
            if inside[0] > 1:
                break
            wake_and_let_look(lock)
        inside[0] -= 1

    def reads() -> None:
        while not waited and turns[0] < most:
            lock.shared(overlaps)

    threads = [threading.Thread(target=reads, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert started.wait(HANG)
    writer = threading.Thread(target=lock.exclusive, args=(lambda: waited.append(turns[0]),), daemon=True)
    writer.start()
    for thread in (writer, *threads):
        thread.join(HANG)
    assert waited[0] <= 4


def test_a_thread_that_is_woken_often_has_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is reported are whole slices, of which none ends here, however often the thread has looked."""
    monkeypatch.setattr(locks, "SLICE", 10**15)
    monkeypatch.setattr(locks, "_machinery", once(locks._LockRuntime))
    lock, reports, inside = Lock(), [], threading.Event()

    def report(owner: int, slices: int) -> None:
        reports.append(slices)

    def wakes() -> None:
        inside.set()
        for _ in range(4 * locks.LOOKED_AT):
            while not lock.words[LockWord.WAITERS]:
                pass
            wake_and_let_look(lock)

    lock.words[LockWord.REPORT] = id(report)
    threads = [threading.Thread(target=lock.shared, args=(wakes,), daemon=True)]
    threads += [threading.Thread(target=lock.exclusive, args=(int,), daemon=True)]
    for thread in threads:
        thread.start()
        assert inside.wait(HANG)
    for thread in threads:
        thread.join(HANG)
        assert not thread.is_alive()
    assert not reports


def test_a_writer_within_a_reader_of_the_same_thread_is_refused_with_words() -> None:
    lock = Lock()
    with pytest.raises(sg.StaticGradError, match="signal handler"):
        lock.shared(lock.exclusive, int)
    assert lock.shared(lock.brief, lock.shared, int) == 0
    assert lock.exclusive(lock.shared, lock.exclusive, int) == 0
    assert is_free(lock)


def test_more_readers_than_a_lock_has_room_for_take_turns() -> None:
    lock, inside, most = Lock(), [0], [0]
    full = threading.Event()

    def reads() -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        if inside[0] == locks.ROW:
            full.set()
        assert full.wait(HANG)
        inside[0] -= 1

    in_threads(2 * locks.ROW, lambda _: lock.shared(reads))
    assert most[0] <= locks.ROW
    lock.exclusive(int)
    assert is_free(lock)


# -- signals ----------------------------------------------------------------------------------------------------------


CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job begins without


def script(text: str, **environment: str) -> str:
    """What a program prints that runs in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", CTRL_C + textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=HANG,
        env={**os.environ, **environment},
        cwd=TESTS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


LONG = """
import os, signal, sys, threading
import numpy as np
import staticgrad as sg
from staticgrad.runtime.parts.locks import LockWord

with sg.Graph() as graph:
    x = sg.placeholder((3,), name="x")
    big = sg.placeholder((1500, 1500), name="big")
    w = sg.Variable(np.zeros(3, np.float32), name="w")
    endless = sg.while_loop(lambda s: s[0] >= 0, lambda s: (s[0] * 1, s[1] * 0.5), (sg.constant(1), x))[1]
    scanned = sg.scan(lambda c, _: (c * 0.5 + 1, None), x, None, length=10**13)[0]
    product = sg.scan(lambda c, _: (sg.matmul(c, big) * 1e-4, None), big, None, length=10**6)[0]
    draws = sg.random.uniform((3,))
    steps = {
        "while_loop": sg.assign(w, w + endless + draws), "scan": sg.assign(w, w + scanned + draws),
        "products on threads": sg.assign(w, w + sg.sum(product) + draws),
    }
    tally = sg.assign(w, w + 1)
feeds = {x: np.ones(3, np.float32), big: np.ones((1500, 1500), np.float32)}

def in_flight(session, word=LockWord.WRITING):
    "Wait for a run that has begun and has given Python's lock away, or for whoever holds the session's lock."
    while not session.store.lock.words[word]:
        pass
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_ends_a_long_run_with_state_as_before(threads: int) -> None:
    """That the other thread sees the run in flight shows that it runs without Python's lock."""
    said = script(
        LONG
        + f"""
with sg.Session(graph, num_threads={threads}) as session:
    session.run(tally)
    for name, step in steps.items():
        exe = session.compile(step, list(feeds))
        for run in (lambda: exe(*feeds.values()), lambda: session.run(step, feeds)):
            before = session.get(w), session.store.writes, session.store.runs_drawn
            def interrupt():
                in_flight(session)
                os.kill(os.getpid(), signal.SIGINT)
            thread = threading.Thread(target=interrupt)
            thread.start()
            try:
                run()
            except KeyboardInterrupt:
                print("interrupted")
            thread.join()
            after = session.get(w), session.store.writes, session.store.runs_drawn
            assert all(map(np.array_equal, before, after)), (name, before, after)
            session.run(tally)
    """
    )
    assert said.split() == ["interrupted"] * 6


@pytest.mark.parametrize("retain", [False, True])
def test_a_backward_that_is_interrupted_changes_no_gradient_and_its_tape_is_whole_or_refused(retain: bool) -> None:
    """A backward that consumes works in the memory of the values: they are lost, and the tape says so."""
    said = script(
        LONG
        + f"""
with graph:
    rows = sg.placeholder((1000, 1000), name="rows", requires_grad=True)
    square = sg.placeholder((1000, 1000), name="square")
    y = rows
    for _ in range(12):
        y = sg.tanh(sg.matmul(y, square))
    loss = sg.sum(y)
feed = {{rows: np.zeros((1000, 1000), np.float32), square: np.eye(1000, dtype=np.float32)}}
with sg.Session(graph, num_threads=1) as session:
    tape = session.forward(loss, feed)
    tape.backward(loss, retain_graph=True)
    expected = session.grad(rows)
    def interrupt():
        in_flight(session)
        os.kill(os.getpid(), signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        tape.backward(loss, retain_graph={retain})
        print("ran")
    except KeyboardInterrupt:
        print("interrupted")
    thread.join()
    np.testing.assert_array_equal(session.grad(rows), expected)
    try:
        tape.backward(loss)
    except sg.BuffersFreedError as error:
        print("refused", "interrupted" in str(error))
    else:
        np.testing.assert_array_equal(session.grad(rows), 2 * expected)
        print("repeated")
    """
    )
    assert said.split() == (["interrupted", "repeated"] if retain else ["interrupted", "refused", "True"])


def test_ctrl_c_ends_a_loop_that_calls_python_functions() -> None:
    """The interpreter runs the handler as the next function begins, before its first line."""
    said = script(
        LONG
        + """
with graph:
    def turn(s):
        (y,) = sg.py_call(lambda value: value, [s[1]], [(sg.float32, (3,))])
        return s[0] * 1, y
    called = sg.assign(w, w + sg.while_loop(lambda s: s[0] >= 0, turn, (sg.constant(1), x))[1])
with sg.Session(graph) as session:
    exe = session.compile(called, list(feeds))
    for _ in range(10):
        def interrupt():
            in_flight(session)
            os.kill(os.getpid(), signal.SIGINT)
        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            exe(*feeds.values())
        except KeyboardInterrupt:
            print("interrupted")
        thread.join()
        assert not session.get(w).any()
    """
    )
    assert said.split() == ["interrupted"] * 10


@pytest.mark.parametrize("bound", ["None", "10**5"])
def test_ctrl_c_ends_a_loop_that_prints(bound: str) -> None:
    """What a handler raises while a value is printed is no error of the print, which would wait for the loop's end."""
    said = script(
        LONG
        + f"""
with graph:
    def turn(s):
        return s[0] * 1, sg.print(s[1], "here")
    shown = sg.while_loop(lambda s: s[0] >= 0, turn, (sg.constant(1), x), max_steps={bound})[1]
    step = sg.assign(w, w + shown)
class Late(Exception):
    pass
def handler(*_):
    raise Late
signal.signal(signal.SIGUSR1, handler)
out, sys.stdout = sys.stdout, open(os.devnull, "w")
with sg.Session(graph) as session:
    exe = session.compile(step, [x])
    for number in (signal.SIGINT, signal.SIGUSR1) * 5:
        def interrupt():
            in_flight(session)
            os.kill(os.getpid(), number)
        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            exe(feeds[x])
        except (KeyboardInterrupt, Late) as error:
            print(type(error).__name__, session.get(w).any(), file=out)
        thread.join()
    """
    )
    assert said.split() == ["KeyboardInterrupt", "False", "Late", "False"] * 5


class Broken:
    """A standard output that cannot be written to."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(text)


def test_a_print_that_fails_ends_an_endless_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((3,))
        w = sg.Variable(np.zeros(3, np.float32))
        turn = sg.while_loop(lambda s: s[0] >= 0, lambda s: (s[0] * 1, sg.print(s[1])), (sg.constant(1), x))[1]
        step = sg.assign(w, turn)
    monkeypatch.setattr("sys.stdout", Broken())
    with sg.Session(graph) as session:
        for _ in range(2):
            with pytest.raises(BrokenPipeError):
                session.run(step, {x: np.ones(3, np.float32)})
            assert not session.get(w).any()


class Interrupter:
    """In the place of the poll of all contexts: what ends programs at a chosen look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks = self.at = 0
        function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(self.poll)
        self.kept = function
        made = interrupts.Context.__init__

        def make(context: interrupts.Context, pool: int) -> None:
            made(context, pool)
            context.words[interrupts.ContextLayout.POLL] = ctypes.cast(function, ctypes.c_void_p).value

        monkeypatch.setattr(interrupts.Context, "__init__", make)
        monkeypatch.setenv("STATICGRAD_CACHE", "0")
        for module in (step, entry, loops, polls):
            always = replace(RATES, polls_from_seconds=0.0, poll_seconds=0.0, loop_poll_seconds=0.0)
            monkeypatch.setattr(module, "RATES", always)

    def poll(self, address: int) -> int:
        words = (ctypes.c_int64 * interrupts.WORDS).from_address(address)
        assert not words[interrupts.ContextLayout.COMMITTED]
        self.looks += 1
        if self.looks != self.at:
            return 0
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(KeyboardInterrupt))
        words[interrupts.ContextLayout.TYPE], words[interrupts.ContextLayout.STOPPED] = id(KeyboardInterrupt), 1
        return 1

    def ends(self, action: Callable[[], object], at: int) -> bool:
        """Whether ``action`` was interrupted at its look number ``at``, from 1."""
        self.looks, self.at = 0, at
        try:
            action()
        except KeyboardInterrupt:
            return True
        finally:
            self.at = 0
        return False


@pytest.mark.parametrize("seeds", [range(3), slow(range(3, 30))])
def test_random_programs_interrupted_at_every_look_leave_state_as_before(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that look after every step and every turn of a loop; in the end they compute what others do."""
    looks = 0
    for seed in seeds:
        case = random_graphs.random_graph(seed, advanced=True)
        with case.graph:
            slopes = sg.gradients(case.loss, case.leaves, unconnected_gradients="zero")
        fetches, found = [case.results, slopes, case.train], []
        for interrupted in (False, True):
            with monkeypatch.context() as patch, np.errstate(all="ignore"), sg.Session(case.graph) as s:
                interrupter = Interrupter(patch) if interrupted else None
                at = 0

                def state(s: sg.Session = s, graph: sg.Graph = case.graph) -> list[Array]:
                    return [*map(s.get, graph.variables.values()), np.array([s.store.writes, s.store.runs_drawn])]

                before = state()
                run = partial(s.run, fetches, case.feeds)
                while interrupter is not None and interrupter.ends(run, at := at + 1):
                    assert all(map(partial(np.array_equal, equal_nan=True), state(), before)), f"seed {seed}"
                if interrupter is None:
                    run()
                looks += at
                found.append([*sg.nest.flatten(s.run(case.results, case.feeds)), *state()])
        for want, got in zip(*found, strict=True):
            assert relative_error(got, want, floor=1e-4) <= 1e-8, f"seed {seed}"
    assert looks > 10 * len(seeds)


def test_what_a_print_raised_in_an_interrupted_run_is_not_raised_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((2,))
        first = sg.print(x * 2, "first")
        last = sg.scan(lambda c, _: (sg.sin(c), None), first, None, length=5)[0]
    interrupter = Interrupter(monkeypatch)
    with sg.Session(graph) as session:
        run, at, has_failed = partial(session.run, last, {x: np.ones(2, np.float32)}), 0, True
        while has_failed:
            at += 1
            with monkeypatch.context() as patch:
                patch.setattr("sys.stdout", Broken())
                try:
                    has_failed = interrupter.ends(run, at)
                except BrokenPipeError:
                    has_failed = interrupter.looks >= at
            run()
    assert at > 1


def test_a_backward_that_never_began_leaves_its_tape_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient of another size is refused before the program is called, which looks for signals as a long one."""
    Interrupter(monkeypatch)
    with sg.Graph() as graph:
        x = sg.placeholder((None, 4), requires_grad=True)
        y = sg.sum(sg.exp(sg.sin(x) * x))
    with sg.Session(graph) as session:
        tapes = [session.forward(y, {x: np.full((rows, 4), 0.5, np.float32)}) for rows in (2, 3)]
        tapes[0].backward(y)
        with pytest.raises(sg.GradientError, match="zero_grad"):
            tapes[1].backward(y)
        session.zero_grad()
        tapes[1].backward(y)
        assert session.grad(x).shape == (3, 4)


def test_a_handler_that_does_not_raise_lets_a_run_go_on() -> None:
    said = script(
        LONG
        + """
seen = []
def handler(*_):
    seen.append(1)
    if len(seen) == 3:
        raise TimeoutError("enough")
signal.signal(signal.SIGALRM, handler)
with sg.Session(graph) as session:
    exe = session.compile(steps["scan"], list(feeds))
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        exe(*feeds.values())
    except TimeoutError as error:
        print(error, len(seen))
    signal.setitimer(signal.ITIMER_REAL, 0)
    """
    )
    assert said.split() == ["enough", "3"]


READING = (
    LONG
    + """
reading = endless + w  # runs until a handler raises
class Enough(BaseException):
    pass
def during_a_run(session, handler):
    "Call a handler in the main thread while it runs a program that reads a variable."
    def handle(*_):
        handler()
        raise Enough
    signal.signal(signal.SIGUSR1, handle)
    def send():
        in_flight(session, LockWord.READERS)
        os.kill(os.getpid(), signal.SIGUSR1)
    thread = threading.Thread(target=send)
    thread.start()
    try:
        session.run(reading, {x: feeds[x]})
    except Enough:
        print("ended", flush=True)
    thread.join()
"""
)


def test_a_handler_saves_the_session_during_a_run_that_reads_it(tmp_path: Path) -> None:
    said = script(
        READING
        + f"""
path = {str(tmp_path / "saved")!r}
with sg.Session(graph) as session:
    session.run(tally)
    during_a_run(session, lambda: (session.save(path), print(session.get(w)[0])))
    session.run(tally)
    session.restore(path)
    print(session.get(w)[0])
    """
    )
    assert said.split() == ["1.0", "ended", "1.0"]


def test_a_handler_that_writes_during_a_run_that_reads_is_refused_with_words() -> None:
    said = script(
        READING
        + """
def writes():
    for write in (lambda: session.set(w, feeds[x]), session.zero_grad, lambda: session.run(tally), added):
        try:
            write()
        except sg.StaticGradError as error:
            print("signal handler" in str(error))
with sg.Session(graph) as session:
    added = session.compile(tally, [])
    during_a_run(session, writes)
    added()
    print(session.get(w)[0])
    """
    )
    assert said.split() == ["True"] * 4 + ["ended", "1.0"]


def test_a_child_forked_by_a_handler_during_a_run_that_reads_goes_on() -> None:
    said = script(
        READING
        + """
children = []
def forks():
    children.append(os.fork())
    if children[0]:
        os.waitpid(children[0], 0)
with sg.Session(graph) as session:
    during_a_run(session, forks)
    session.run(tally)
    print(session.get(w)[0], session.store.lock.words[LockWord.GATE], flush=True)
    if not children[0]:
        os._exit(0)
    """
    )
    assert said.split() == ["ended", "1.0", "0"] * 2


def test_ctrl_c_while_another_thread_has_the_session_ends_the_wait() -> None:
    said = script(
        LONG
        + """
with sg.Session(graph) as session:
    session.run(tally)
    done, lock = threading.Event(), session.store.lock
    holder = threading.Thread(target=lock.exclusive, args=(done.wait,))
    holder.start()
    in_flight(session, LockWord.GATE)
    def interrupt():
        while not lock.words[LockWord.WAITERS]:
            pass
        os.kill(os.getpid(), signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        session.run(tally)
    except KeyboardInterrupt:
        print("interrupted")
    done.set()
    holder.join(), thread.join()
    session.run(tally)
    print(session.get(w)[0])
    """
    )
    assert said.split() == ["interrupted", "2.0"]


def test_signals_at_random_moments_lose_no_lock() -> None:
    """Handlers that raise while runs begin and end; which moments they meet is up to the machine, that nobody hangs and
    that every run counts once or not at all is not."""
    said = script(
        LONG
        + """
class Late(Exception):
    pass
def handler(*_):
    raise Late
signal.signal(signal.SIGALRM, handler)
rng = np.random.default_rng(0)
with sg.Session(graph) as session:
    exe = session.compile(tally, [])
    for round in range(400):
        before = session.get(w)[0]
        runs = 0
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 3e-4))
            while True:
                session.run(tally) if round % 2 else exe()
                runs += 1
        except Late:
            pass
        assert session.get(w)[0] - before in (runs, runs + 1), (round, before, runs)
        assert session.store.writes == session.get(w)[0]
    thread = threading.Thread(target=session.run, args=(tally,))
    thread.start()
    thread.join()
    print("done")
    """
    )
    assert said.split() == ["done"]


# -- forks ------------------------------------------------------------------------------------------------------------

FORK = (
    LONG
    + """
def in_child(work):
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            print(type(error).__name__, error, file=sys.stderr)
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def uses(session, w0):
    "Everything in a child: state, a kept program, a new one, threads, a tape, another writer."
    assert session.get(w)[0] == w0
    session.run(tally)
    assert session.get(w)[0] == w0 + 1
    with graph:
        y = sg.sum(w * x) + sg.sum(sg.matmul(big, big))
    expected = 3 * (w0 + 1) + 1500.0**3
    np.testing.assert_allclose(session.run(y, feeds), expected, rtol=1e-5)
    tape = session.forward(y, feeds)
    tape.backward(y)
    assert session.grad(w)[0] == 1
"""
)


def used_in_child(beside: str, after: str = "", **environment: str) -> str:
    """What a program prints that forks when ``beside`` has begun something in another thread, goes on with ``after``,
    and whose child uses the session: its exit code, 0 where all went well."""
    body = ["session.run(tally)", beside, "print(in_child(lambda: uses(session, 1)), flush=True)", after]
    indented = textwrap.indent("\n".join(map(textwrap.dedent, body)), "    ")
    return script(f"{FORK}with sg.Session(graph, num_threads=2) as session:\n{indented}", **environment)


def test_a_child_forked_beside_a_long_run_has_the_state_before_it() -> None:
    said = used_in_child(
        """
        exe = session.compile(steps["while_loop"], list(feeds))
        thread = threading.Thread(target=exe, args=tuple(feeds.values()), daemon=True)
        thread.start()
        in_flight(session)
        """,
        "os._exit(0)",
    )
    assert said.split() == ["0"]


def test_a_child_forked_beside_a_compilation_can_compile() -> None:
    said = used_in_child(
        """
        done, begun = threading.Event(), threading.Event()
        def hold():
            with graph._lock:
                begun.set()
                done.wait()
        threads = [threading.Thread(target=session.compiler.lock.exclusive, args=(hold,)),
                   threading.Thread(target=session.store.lock.brief, args=(done.wait,))]
        for thread in threads:
            thread.start()
        begun.wait()
        in_flight(session, LockWord.GATE)
        """,
        "done.set()",
    )
    assert said.split() == ["0"]


def test_a_child_forked_while_a_thread_drops_an_object_of_llvmlite_can_compile() -> None:
    """Finalizers take llvmlite's lock; a fork waits for them."""
    said = used_in_child(
        """
        import llvmlite.binding as llvm
        from staticgrad.compiler.native import object_loader
        begun = threading.Event()
        def main_thread_waits():
            frame = sys._current_frames()[threading.main_thread().ident]
            while frame is not None and frame.f_code.co_name != "_before_fork":
                frame = frame.f_back
            return frame is not None
        def finalize():
            with llvm.ffi.lib._lock:
                begun.set()
                while not main_thread_waits():
                    pass
        thread = threading.Thread(target=finalize, daemon=True)
        thread.start()
        begun.wait()
        """,
        "thread.join()",
        STATICGRAD_CACHE="0",
    )
    assert said.split() == ["0"]


def test_threads_that_need_their_first_lock_at_once_share_its_code() -> None:
    said = script(
        """
import linecache, sys, threading
from staticgrad.runtime.parts import locks
made, first = [], threading.Event()
build = locks._LockRuntime.__init__
def waits():
    frame = sys._current_frames()[second.ident]
    return "with making" in linecache.getline(frame.f_code.co_filename, frame.f_lineno)
def slowly(self):
    made.append(1)
    first.set()
    while len(made) == 1 and not waits():
        pass
    build(self)
locks._LockRuntime.__init__ = slowly
def later():
    first.wait()
    locks.Lock().exclusive(int)
second = threading.Thread(target=later)
second.start()
locks.Lock().exclusive(int)
second.join()
print(len(made))
    """
    )
    assert said.split() == ["1"]


def test_a_child_forked_while_state_is_being_written_refuses_its_session_with_words() -> None:
    said = script(
        FORK
        + """
with sg.Session(graph) as session:
    session.run(tally)
    exe = session.compile(tally, [])
    lock, done = session.store.lock, threading.Event()
    def write():
        lock.words[LockWord.WRITING] = 1
        done.wait()
        lock.words[LockWord.WRITING] = 0
    thread = threading.Thread(target=lock.exclusive, args=(write,))
    thread.start()
    in_flight(session)
    def refused():
        for use in (exe, lambda: session.get(w), lambda: session.run(tally), lambda: session.forward(w)):
            try:
                use()
            except sg.StaticGradError as error:
                assert "forked while another thread was writing" in str(error)
            else:
                raise AssertionError("not refused")
        with sg.Session(graph) as other:
            other.run(tally)
    print(in_child(refused), flush=True)
    done.set()
    thread.join()
    session.run(tally)
    print(session.get(w)[0])
    """
    )
    assert said.split() == ["0", "2.0"]


def test_a_child_forked_by_a_function_that_a_run_calls_goes_on() -> None:
    said = script(
        FORK
        + """
parent = os.getpid()
with graph:
    called = sg.py_call(lambda value: os.waitpid(child, 0) and None if (child := os.fork()) else None, [w], [])
    with sg.control_dependencies([called]):
        step = sg.assign(w, w + 2)
with sg.Session(graph) as session:
    session.run(step)
    print(session.get(w)[0], flush=True)
    if os.getpid() != parent:
        os._exit(0)
    """
    )
    assert said.split() == ["2.0", "2.0"]


# -- waits without an end ---------------------------------------------------------------------------------------------


def test_a_py_call_that_joins_a_thread_of_the_session_is_reported() -> None:
    failures: list[BaseException] = []

    def use() -> None:
        try:
            s.get(w)
        except sg.StaticGradError as error:
            failures.append(error)

    def waits(value: Array) -> None:
        thread = threading.Thread(target=use)
        thread.start()
        thread.join(HANG)

    with sg.Graph() as graph:
        w = sg.Variable(np.zeros(2, np.float32), name="w")
        called = sg.py_call(waits, [w], [])
    with sg.Session(graph) as s:
        s.run(called)
        assert s.get(w).tolist() == [0, 0]
    (error,) = failures
    assert "waits" in str(error)
    assert "py_call" in str(error)
    assert "test_interruptions.py" in str(error)


@pytest.fixture(autouse=True)
def garbage_collected() -> Iterator[None]:
    """What a test leaves in cycles is gone before the next one forks."""
    yield
    gc.collect()
