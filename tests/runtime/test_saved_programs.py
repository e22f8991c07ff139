"""Programs that are loaded without the compiler: they run as they did, and nothing but whole files of one's own do."""

from __future__ import annotations

import copy
import gc
import hashlib
import itertools
import json
import multiprocessing
import os
import pickle
import random
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from source_tree import ROOT
from support import handmade
from support.concurrency import in_threads
from support.handmade import HOLDING, LOOKING, READ, SCALE, STEP, W_BEGIN, WAITING

import staticgrad as sg
from staticgrad.base import image, plain
from staticgrad.base.image import LoadedImage
from staticgrad.compiler.machine.target import TARGETS, runs_here
from staticgrad.ops.interpreter import bounds_error
from staticgrad.runtime.export import program_file
from staticgrad.runtime.export.calls import EntryCalls
from staticgrad.runtime.export.loaded import LoadedEntry, LoadedProgram, ProgramCode, ProgramInstance
from staticgrad.runtime.parts.descriptors import layout_is_known
from staticgrad.runtime.parts.vectorcall import IS_FREE_THREADED

pytestmark = pytest.mark.skipif(not image.loads_here(), reason="programs are for x86-64 and ELF")

FORMAT_1 = ROOT / "tests" / "data" / "programs" / "format1.sgp"
X = np.array([1, 2, 3, 4], np.float32)


def written(path: Path, content: bytes) -> Path:
    """A file that only its user may write to."""
    path.write_bytes(content)
    path.chmod(0o600)
    return path


@pytest.fixture(params=(True, False), ids=("called", "plain"))
def called(request: pytest.FixtureRequest) -> bool:
    """Whether files carry the machine code by which Python calls their entries."""
    return bool(request.param)


@pytest.fixture
def program(called: bool, tmp_path: Path) -> LoadedProgram:
    return sg.load(written(tmp_path / "handmade", handmade.content(called=called)))


@pytest.fixture
def scale(called: bool, tmp_path: Path) -> LoadedProgram:
    """A program of one entry, which is callable."""
    return sg.load(written(tmp_path / "scale", handmade.content(SCALE, called=called)))


@pytest.fixture
def waiting(called: bool, tmp_path: Path) -> LoadedProgram:
    """A program with entries that run until a flag is set."""
    entries = STEP, READ, WAITING, LOOKING, HOLDING
    return sg.load(written(tmp_path / "waiting", handmade.content(*entries, called=called)))


# -- calls ------------------------------------------------------------------------------------------------------------


def test_entries_run_and_share_the_state(program: LoadedProgram) -> None:
    w, counted, nothing = program.step(X, np.array(1))
    np.testing.assert_array_equal(w, W_BEGIN + X, strict=True)
    assert list(counted) == ["count"]
    np.testing.assert_array_equal(counted["count"], np.array(1), strict=True)
    assert nothing is None
    np.testing.assert_array_equal(program.read(), 2 * (W_BEGIN + X), strict=True)
    again = program.step(X, np.array(0))[0]
    np.testing.assert_array_equal(w, W_BEGIN + X, strict=True)  # results are the caller's
    np.testing.assert_array_equal(again, W_BEGIN + 2 * X, strict=True)


def test_a_program_of_one_entry_is_callable(scale: LoadedProgram, program: LoadedProgram) -> None:
    np.testing.assert_array_equal(scale(np.eye(2)), 3 * np.eye(2), strict=True)
    with pytest.raises(sg.FetchError, match="step, read, scale"):
        program(np.eye(2))


def test_entries_are_found_by_name(program: LoadedProgram) -> None:
    assert list(program) == list(program.entries) == ["step", "read", "scale"]
    assert len(program) == 3
    assert "step" in program
    assert "state" not in program
    assert program["scale"] is program.scale is program.entries["scale"]
    assert {"step", "read", "scale", "state", "save"} <= set(dir(program))
    assert [(x.name, str(x.type)) for x in program.step.feeds] == [("x", "float32[4]"), ("i", "int64[]")]
    assert [x.name for x in program.step.results] == ["w", "n"]
    assert repr(program.step) == "<LoadedEntry step(x: float32[4], i: int64[]) -> w: float32[4], n: int64[]>"
    assert repr(program) == f"<LoadedProgram 'handmade' for {program.target}: step, read, scale, state 128 B>"
    with pytest.raises(sg.FetchError, match=r"'other'.*step, read, scale"):
        program["other"]
    assert not hasattr(program, "other")


CONVERTED: tuple[Any, ...] = (
    [[1, 2], [3, 4]], ((1.5, 2), (3, 4)), np.arange(4.0).reshape(2, 2).T, np.ones((2, 2), np.float32),
    np.ones((2, 2), np.int32), np.ones((4, 4))[::2, ::2], np.frombuffer(bytes(32)).reshape(2, 2),
    np.ones((2, 2), ">f8"), memoryview(np.ones((2, 2))),
)  # fmt: skip


@pytest.mark.parametrize("given", CONVERTED, ids=lambda given: type(given).__name__)
def test_feeds_are_converted(given: Any, scale: LoadedProgram) -> None:
    np.testing.assert_array_equal(scale(given), 3 * np.asarray(given, np.float64), strict=True)


REFUSED: tuple[Any, ...] = (
    np.ones((2, 3)), np.ones(2), np.ones((2, 2), np.complex128), [[1, 2], [3]], "text", None, [["a", "b"], ["c", "d"]],
    np.ones((2, 2), np.longdouble), object(), 3.0, {}, [np.ones(2), 3],
)  # fmt: skip


@pytest.mark.parametrize("given", REFUSED, ids=lambda given: type(given).__name__)
def test_feeds_are_refused_as_an_executable_refuses_them(given: Any, scale: LoadedProgram, g: sg.Graph) -> None:
    x = sg.placeholder((2, 2), sg.float64, name="x")
    with pytest.raises(sg.FeedError) as expected:
        sg.Session(g).compile(x * 3, x)(given)
    with pytest.raises(sg.FeedError) as actual:
        scale(given)
    first = expected.value.message.splitlines()[0]
    assert actual.value.message.splitlines()[0] == first or isinstance(given, dict)


def test_a_wrong_number_of_feeds_is_refused(program: LoadedProgram) -> None:
    with pytest.raises(sg.FeedError, match=r"expected 2 arrays \(for 'x', 'i'\), actual 1: .*step\(x, i\)"):
        program.step(X)
    with pytest.raises(sg.FeedError, match="expected 0 arrays"):
        program.read(X)


def test_results_are_written_into_given_arrays(program: LoadedProgram, scale: LoadedProgram) -> None:
    w, n = np.empty(4, np.float32), np.empty((), np.int64)
    out = [w, {"count": n}, None]
    assert program.step(X, 0, out=out) is out
    assert (w.tolist(), n.item()) == ((W_BEGIN + X).tolist(), 1)
    partly: list[Any] = [None, {"count": n}, None]
    assert program.step(X, 0, out=partly) is partly
    assert (partly[0].tolist(), n.item()) == ((W_BEGIN + 2 * X).tolist(), 2)
    y = np.empty((2, 2))
    assert scale(np.eye(2), out=y) is y
    assert y.tolist() == [[3, 0], [0, 3]]


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.empty((2, 2), np.float32), "float64"),
        (np.empty((2, 3)), "float64"),
        (np.empty((2, 4))[:, ::2], "c-contiguous"),
        ([[0.0, 0.0], [0.0, 0.0]], "expected an array"),
    ],
    ids=("dtype", "shape", "strides", "list"),
)
def test_what_results_cannot_be_written_to_is_refused(out: Any, message: str, scale: LoadedProgram) -> None:
    with pytest.raises(sg.FeedError, match=message):
        scale(np.eye(2), out=out)


def test_results_may_not_overlap_feeds(scale: LoadedProgram, program: LoadedProgram) -> None:
    x = np.eye(2)
    with pytest.raises(sg.FeedError, match="overlaps a feed"):
        scale(x, out=x)
    with pytest.raises(sg.FeedError, match="nest of the fetches"):
        program.step(X, 0, out=X)


def test_failed_checks_raise_what_a_session_raises(program: LoadedProgram) -> None:
    with pytest.raises(sg.StaticGradError, match=r"assertion failed: x\[0\] is negative\n  declared at train.py:7"):
        program.step(-X, 0)
    with pytest.raises(sg.BoundsError, match=r"declared at train\.py:8") as caught:
        program.step(X, 7)
    assert caught.value.message.startswith(bounds_error("take", 3, 7, 7, None).message)
    with pytest.raises(IndexError, match="index -1 is out of range"):
        program.step(X, -1)
    with pytest.raises(sg.NumericsError, match="op 'log' made a NaN"):
        program.step([1, np.nan, 0, 0], 0)
    assert program.get("n") == 0  # nothing was written
    np.testing.assert_array_equal(program.get("w"), W_BEGIN)


def test_an_error_ends_at_the_caller_s_line(program: LoadedProgram) -> None:
    with pytest.raises(sg.FeedError) as caught:
        program.step(X)
    assert [frame.name for frame in caught.traceback] == ["test_an_error_ends_at_the_caller_s_line"]


# -- state ------------------------------------------------------------------------------------------------------------


def test_variables_are_read_and_set(program: LoadedProgram) -> None:
    state = program.state
    assert list(state) == ["w", "n"]
    state["w"][:] = 0  # a copy
    np.testing.assert_array_equal(program.get("w"), W_BEGIN, strict=True)
    program.set("w", [4, 3, 2, 1])
    np.testing.assert_array_equal(program.read(), np.array([8, 6, 4, 2], np.float32))
    with pytest.raises(sg.FeedError, match="feed of 'w': wrong shape"):
        program.set("w", [1, 2])
    with pytest.raises(sg.FetchError, match=r"no variable 'v': .*'w', 'n'"):
        program.get("v")
    program.step(X, 0)
    program.reset()
    np.testing.assert_array_equal(program.get("w"), W_BEGIN)
    assert program.get("n") == 0
    with pytest.raises(sg.StaticGradError, match="draws no random numbers"):
        program.reset(seed=1)


@pytest.mark.parametrize("copied", [LoadedProgram.copy, copy.copy, copy.deepcopy], ids=lambda f: f.__name__)
def test_copies_share_code_and_no_state(
    copied: Callable[[LoadedProgram], LoadedProgram], program: LoadedProgram
) -> None:
    program.step(X, 0)
    other = copied(program)
    np.testing.assert_array_equal(other.get("w"), W_BEGIN + X)
    other.step(X, 0)
    np.testing.assert_array_equal(program.get("w"), W_BEGIN + X)
    np.testing.assert_array_equal(other.get("w"), W_BEGIN + 2 * X)
    other.reset()
    np.testing.assert_array_equal(other.get("w"), W_BEGIN)
    assert other._instance.code is program._instance.code


def test_the_state_goes_to_a_checkpoint_and_back(program: LoadedProgram, tmp_path: Path) -> None:
    program.step(X, 0)
    program.save(tmp_path / "state")
    other = program.copy()
    other.reset()
    other.restore(tmp_path / "state")
    assert {name: value.tolist() for name, value in other.state.items()} == {"w": [2, 4, 6, 8], "n": 1}


def test_checkpoints_go_between_sessions_and_programs(program: LoadedProgram, g: sg.Graph, tmp_path: Path) -> None:
    w = sg.Variable(np.arange(4, dtype=np.float32), name="w")
    n, other = sg.Variable(np.int64(5), name="n"), sg.Variable(1.0, name="other")
    sess = sg.Session(g, seed=3)
    sess.save(tmp_path / "session")
    program.restore(tmp_path / "session")
    assert {name: value.tolist() for name, value in program.state.items()} == {"w": [0, 1, 2, 3], "n": 5}
    program.step(X, 0)
    program.save(tmp_path / "program")
    missing, unexpected = sess.restore(tmp_path / "program", strict=False)
    assert (missing, unexpected) == (["other"], [])
    assert (sess.get(w).tolist(), sess.get(n), sess.get(other), sess.seed) == ([1, 3, 5, 7], 6, 1, 3)


def test_a_checkpoint_of_something_else_changes_nothing(program: LoadedProgram, g: sg.Graph, tmp_path: Path) -> None:
    sg.Variable(np.zeros(4, np.float32), name="w")
    sess = sg.Session(g)
    sess.save(tmp_path / "lacking")
    with pytest.raises(sg.FormatError, match="lacks 'n'"):
        program.restore(tmp_path / "lacking")
    sg.Variable(0.0, name="n")
    sess.save(tmp_path / "dtype")
    with pytest.raises(sg.FormatError, match=r"(?s)'n'.*expected int64\[\].*actual   float32\[\]"):
        program.restore(tmp_path / "dtype")
    written(tmp_path / "none", b"nothing")
    with pytest.raises(sg.FormatError, match="no safetensors file"):
        program.restore(tmp_path / "none")
    np.testing.assert_array_equal(program.get("w"), W_BEGIN)


# -- threads, processes -----------------------------------------------------------------------------------------------


def test_runs_of_many_threads_take_turns_at_the_state(program: LoadedProgram) -> None:
    counts: list[int] = []

    def work(_: int) -> None:
        counts.extend(int(program.step(np.ones(4, np.float32), 0)[1]["count"]) for _ in range(200))

    in_threads(4, work)
    assert sorted(counts) == list(range(1, 801))
    np.testing.assert_array_equal(program.get("w"), W_BEGIN + 800)


def test_runs_of_many_threads_do_not_meet(scale: LoadedProgram) -> None:
    def work(number: int) -> None:
        x = np.full((2, 2), float(number))
        for _ in range(200):
            assert (scale(x) == 3 * number).all()

    in_threads(4, work)


class Running:
    """An entry that runs in a thread of its own until it is let go; ``seen`` is what it found then."""

    def __init__(self, entry: LoadedEntry) -> None:
        self.flag, self.began, self.seen = (np.zeros((), np.int64) for _ in range(3))
        self.thread = threading.Thread(target=entry, args=(self.flag,), kwargs={"out": (self.began, self.seen)})

    def __enter__(self) -> Running:
        self.thread.start()
        while not self.began:
            assert self.thread.is_alive()
        return self

    def __exit__(self, *_: object) -> None:
        self.flag[()] = 7
        self.thread.join()
        assert self.seen == 7, "the interpreter was not free while the program ran"


def test_the_interpreter_is_free_while_a_program_runs(waiting: LoadedProgram) -> None:
    with Running(waiting.wait), Running(waiting.wait):
        waiting.step(X, 0)
    np.testing.assert_array_equal(waiting.get("w"), W_BEGIN + X)


class Later:
    """A call in a thread of its own, which has to wait though it gets the interpreter over and over."""

    def __init__(self, call: Callable[[], object], program: LoadedProgram) -> None:
        self.began, self.done = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=lambda: (self.began.set(), call(), self.done.set()))
        self.thread.start()
        self.began.wait()
        for _ in range(200):
            program.wait(np.array(1))  # gives the interpreter away
        assert not self.done.is_set()

    def end(self) -> None:
        self.thread.join()
        assert self.done.is_set()


def test_runs_that_read_the_state_go_side_by_side_and_those_that_write_alone(waiting: LoadedProgram) -> None:
    with Running(waiting.look), Running(waiting.look) as running:
        assert waiting.read().tolist() == [2, 4, 6, 8]
        assert waiting.get("n") == 0
        assert waiting.copy().step(X, 0)[1]["count"] == 1
        steps = [Later(call, waiting) for call in (lambda: waiting.step(X, 0), lambda: waiting.set("n", 4))]
        reads = Later(waiting.read, waiting)  # behind them
        assert running.thread.is_alive()
    for later in (*steps, reads):
        later.end()
    with Running(waiting.hold):
        calls = waiting.read, lambda: waiting.get("w"), lambda: waiting.hold(np.array(1))
        others = [Later(call, waiting) for call in calls]
    for later in others:
        later.end()
    assert waiting.read().tolist() == [4, 8, 12, 16]


def test_a_state_that_its_own_thread_reads_is_not_written(waiting: LoadedProgram) -> None:
    """As by a signal handler during a run that reads."""
    lock = waiting._instance.lock
    with lock.reading():
        assert waiting.read().tolist() == [2, 4, 6, 8]
        with pytest.raises(sg.StaticGradError, match="in the middle of a run that reads it, by the same thread"):
            waiting.step(X, 0)
    with lock.writing():
        waiting.set("w", np.zeros(4, np.float32))  # as by one during a write
        assert waiting.read().tolist() == [0, 0, 0, 0]
    assert waiting.step(X, 0)[1]["count"] == 1


def test_reads_and_writes_of_many_threads_do_not_meet(program: LoadedProgram) -> None:
    """Every value that is read is one that was there as a whole."""
    ones, ends = np.ones(4, np.float32), threading.Event()
    program.set("w", np.zeros(4, np.float32))

    def work(number: int) -> None:
        if number < 2:
            for _ in range(300):
                program.step(ones, 0)
            ends.set()
        else:
            while not ends.is_set():
                assert len(set(program.read().tolist())) == len(set(program.get("w").tolist())) == 1

    in_threads(4, work)
    assert program.get("w").tolist() == [600] * 4


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def in_forked_child(work: Callable[[], bool]) -> bool:
    """What work says in a forked child."""
    child = os.fork()
    if not child:
        status = 1
        try:
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@needs_fork
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_goes_on_by_itself(program: LoadedProgram) -> None:
    program.step(X, 0)

    def work() -> bool:
        return program.step(X, 0)[0].tolist() == (W_BEGIN + 2 * X).tolist() and program.get("n") == 2

    assert in_forked_child(work)
    assert program.get("n") == 1


@needs_fork
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_that_is_forked_during_a_run_says_so(waiting: LoadedProgram) -> None:
    def refused(work: Callable[[], object]) -> bool:
        try:
            work()
        except sg.StaticGradError as error:
            return "was forked while another thread wrote the state" in str(error)
        return False

    def work() -> bool:
        torn = all(map(refused, (lambda: waiting.step(X, 0), lambda: waiting.state, lambda: pickle.dumps(waiting))))
        found = waiting.wait(np.array(1))[1] == 1
        waiting.reset()
        return torn and bool(found) and waiting.step(X, 0)[1]["count"] == 1

    with Running(waiting.hold):
        assert in_forked_child(work)
    with Running(waiting.look):
        assert in_forked_child(lambda: bool(waiting.step(X, 0)[1]["count"] == 1))
    assert waiting.step(X, 0)[1]["count"] == 1


def test_a_pickled_program_takes_its_state_along(program: LoadedProgram) -> None:
    program.step(X, 0)
    other = pickle.loads(pickle.dumps(program))
    np.testing.assert_array_equal(other.get("w"), W_BEGIN + X)
    other.step(X, 0)
    assert (other.get("n"), program.get("n")) == (2, 1)
    other.reset()
    np.testing.assert_array_equal(other.get("w"), W_BEGIN)
    step, read = pickle.loads(pickle.dumps((program.step, program.read)))  # which go on sharing theirs
    step(X, 0)
    np.testing.assert_array_equal(read(), 2 * (W_BEGIN + 2 * X))


def test_programs_are_sent_to_processes(scale: LoadedProgram) -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        for result in pool.map(scale, [np.eye(2), 2 * np.eye(2)]):
            assert result[0, 0] in (3, 6)


@pytest.mark.slow
def test_programs_are_sent_by_joblib(scale: LoadedProgram) -> None:
    joblib = pytest.importorskip("joblib")
    found = joblib.Parallel(2)(joblib.delayed(scale)(number * np.eye(2)) for number in range(4))
    assert [int(y[0, 0]) for y in found] == [0, 3, 6, 9]


# -- calls in machine code --------------------------------------------------------------------------------------------


def is_called(entry: Any) -> bool:
    """Whether calls go to a function in machine code first."""
    return type(entry.__call__).__name__ == "builtin_function_or_method"


@pytest.fixture
def through_python(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of entries that are called through Python."""
    seen: list[str] = []
    run = EntryCalls.run_ready

    def noted(calls: EntryCalls, *arrays: Any) -> Any:
        seen.append(calls.code.entry.name)
        return run(calls, *arrays)

    monkeypatch.setattr(EntryCalls, "run_ready", noted)
    return seen


needs_entries = pytest.mark.skipif(not layout_is_known(), reason="this interpreter's objects are not known")


@needs_entries
@pytest.mark.skipif(IS_FREE_THREADED, reason="runs that touch the state note their threads, and lists may change")
def test_calls_of_a_file_that_carries_its_caller_do_not_go_through_python(
    tmp_path: Path, through_python: list[str]
) -> None:
    program = sg.load(written(tmp_path / "file", handmade.content(called=True)))
    scale = sg.load(written(tmp_path / "scale", handmade.content(SCALE, called=True)))
    assert all(map(is_called, (program.read, program.scale, scale)))
    for given in (np.eye(2), [[1.0, 0.0], [0.0, 1.0]], [[1, 0], [0, 1]]):
        assert scale(given).tolist() == program.scale(given).tolist() == [[3, 0], [0, 3]]
    y = np.empty((2, 2))
    assert scale(np.eye(2), out=y) is y
    assert program.step(X, 1)[1]["count"] == 1
    assert program.read().tolist() == [4, 8, 12, 16]
    copied, sent = program.copy(), pickle.loads(pickle.dumps(program))
    for other in (copied, sent):
        assert other.step(X, np.array(1))[0].tolist() == [3, 6, 9, 12]
    assert program.read().tolist() == [4, 8, 12, 16]  # of its own
    assert through_python == []
    assert scale(np.eye(2, dtype=np.float32)).tolist() == [[3, 0], [0, 3]]
    assert through_python[-1:] == ["scale"]


@needs_entries
@pytest.mark.skipif(IS_FREE_THREADED, reason="runs that touch the state note their threads")
def test_runs_in_machine_code_look_for_readers_and_writers(waiting: LoadedProgram, through_python: list[str]) -> None:
    lock = waiting._instance.lock
    with lock.reading():
        waiting.read()  # goes on beside readers
        before = len(through_python)
        with pytest.raises(sg.StaticGradError, match="in the middle of a run that reads it"):
            waiting.step(X, 0)
        assert len(through_python) == before + 1
    with lock.writing():
        waiting.read()
        assert through_python[-1] == "read"
    through_python.clear()
    waiting.step(X, 0)
    waiting.read()
    assert through_python == ([] if is_called(waiting.read) else ["step", "read"])
    lock._tear(True)
    with pytest.raises(sg.StaticGradError, match="was forked while another thread wrote the state"):
        waiting.read()
    waiting.reset()
    assert waiting.read().tolist() == [2, 4, 6, 8]


@needs_entries
def test_an_entry_that_calls_itself_from_a_finalizer_goes_through_python(tmp_path: Path) -> None:
    """As what a collection of garbage in the middle of a call may do."""
    scale = sg.load(written(tmp_path / "scale", handmade.content(SCALE, called=True)))
    found: list[Any] = []

    class Feed:
        def __dlpack__(self, **_: object) -> Any:
            found.append(scale(np.eye(2)).tolist())
            return np.ones((2, 2)).__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    assert scale(Feed()).tolist() == [[3, 3], [3, 3]]
    assert found == [[[3, 0], [0, 3]]]


@needs_entries
def test_dropped_programs_take_their_states_along(tmp_path: Path) -> None:
    program = sg.load(written(tmp_path / "file", handmade.content(called=True)))
    entry = program.read
    entry()
    state = weakref.ref(program._instance)
    gc.disable()
    try:
        del program
        assert entry().tolist() == [2, 4, 6, 8]
        del entry
        assert state() is None
    finally:
        gc.enable()


def test_a_caller_for_other_interpreters_is_left_alone(tmp_path: Path) -> None:
    content = changed(handmade.content(called=True), lambda header: header["caller"].update(head=24))
    program = sg.load(written(tmp_path / "file", content))
    assert not is_called(program.read)
    assert program.read().tolist() == [2, 4, 6, 8]


@pytest.mark.parametrize("caller", [None, 1, {}, {"head": 16}, {"head": "16", "section": [0, 1]}], ids=repr)
def test_a_caller_that_is_none_is_refused(caller: Any, tmp_path: Path) -> None:
    content = changed(handmade.content(called=True), lambda header: header.update(caller=caller))
    with pytest.raises(sg.FormatError, match="damaged"):
        sg.load(written(tmp_path / "file", content))


@needs_entries
def test_a_caller_without_its_functions_is_refused(tmp_path: Path) -> None:
    whole = program_file.to_bytes(
        handmade.interface(), {"generic": handmade.code()}, handmade.initial(), handmade.code()
    )
    with pytest.raises(sg.FormatError, match="the code by which entries are called does not load"):
        sg.load(written(tmp_path / "file", whole))


@needs_entries
@pytest.mark.parametrize("form", ["tuple", "dict", "op", "one", "number"])
def test_nests_of_results_are_made_without_a_detour(
    form: str, g: sg.Graph, tmp_path: Path, through_python: list[str]
) -> None:
    x, w = sg.placeholder((3,), name="x"), sg.Variable(np.ones(3, np.float32))
    kinds: dict[str, Any] = {
        "tuple": (x + 1, x * 2), "dict": {"b": x + 1, "a": x * 2}, "op": {"y": x + w, "moved": sg.assign(w, w + x)},
        "one": (x - 1,), "number": {"s": sg.sum(x), 3: x},
    }  # fmt: skip
    exe, fed = sg.Session(g).compile(kinds[form], x), np.arange(3, dtype=np.float32)
    exe(fed)
    exe.export(tmp_path / "file", format="program", name="entry")
    program = sg.load(tmp_path / "file")
    given: Any = None
    for _ in range(3):
        found, wanted = program(fed), exe(fed)
        assert type(found) is type(wanted) is type(kinds[form])
        if form in ("dict", "op", "number"):
            assert list(found) == list(wanted) == list(kinds[form])
        assert repr(found) == repr(wanted)
        if form != "op":
            given = program(fed)
            assert program(fed, out=given) is given
            assert repr(given) == repr(wanted)
            assert exe(fed, out=given) is given
    assert is_called(program)
    assert is_called(exe)
    in_python = ["entry"] * 3 if form in ("tuple", "one") else []  # with a tuple as out
    assert through_python == in_python or IS_FREE_THREADED
    before = sys.getrefcount(fed)
    for _ in range(100):
        program(fed)
        exe(fed)
    assert sys.getrefcount(fed) == before
    for wrong in ([fed, fed], {"c": fed, "a": fed}, {"b": fed}, {"b": found, "a": found, "more": fed}, 5):
        for call in (program, exe):
            with pytest.raises(sg.FeedError):
                call(fed, out=wrong)


@needs_entries
def test_programs_that_take_long_let_other_threads_run(g: sg.Graph, tmp_path: Path) -> None:
    x, w = sg.placeholder((300, 300), sg.float64), sg.Variable(np.eye(300))
    brief = sg.placeholder((3,), sg.float64)
    exported = {
        "product": sg.Session(g).compile(x @ x, x), "state": sg.Session(g).compile(x @ w, x),
        "doubled": sg.Session(g).compile(brief * 2, brief),
    }  # fmt: skip
    found = {}
    for name, exe in exported.items():
        exe.export(tmp_path / name, format="program", name=name)
        program = sg.load(tmp_path / name)
        found[name] = program._instance.code.entries[name].entry.is_brief, is_called(program)
    assert found == {"product": (False, True), "state": (False, False), "doubled": (True, True)}


# -- without a compiler -----------------------------------------------------------------------------------------------

BARE = """
import sys
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"llvmlite", "networkx", "ml_dtypes", "scipy", "safetensors"}:
            raise ModuleNotFoundError(f"{name} is not installed here", name=name)
        if name.startswith("staticgrad.compiler") and REFUSES_COMPILER:
            raise ModuleNotFoundError(f"{name} is not there", name=name)
sys.meta_path.insert(0, Refusing())
import numpy as np
known = {*sys.modules}
import staticgrad as sg
program = sg.load(sys.argv[1])
print(program.step([1, 2, 3, 4], 1), program.read(), *program.state, flush=True)
print(type(program.read.__call__).__name__, flush=True)
print(len({*sys.modules} - known), *sorted({*sys.modules} - known), flush=True)
for values in ((), ([1.0], 0), ([-1, 2, 3, 4], 1), ([1, 2, 3, 4], 5)):
    try:
        program.step(*values)
    except sg.StaticGradError as error:
        print(type(error).__name__, flush=True)
program.save(sys.argv[2])
program.restore(sys.argv[2])
program.copy().reset()
assert not any(name.startswith("staticgrad.compiler") for name in sys.modules)
"""


def bare(tmp_path: Path, code: str, environment: dict[str, str], called: bool) -> list[str]:
    path = written(tmp_path / "handmade", handmade.content(called=called))
    command = [sys.executable, "-c", code, str(path), str(tmp_path / "saved")]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_program_runs_with_numpy_alone(called: bool, tmp_path: Path) -> None:
    answers, kinds, modules, *errors = bare(tmp_path, BARE.replace("REFUSES_COMPILER", "True"), {}, called)
    assert kinds == ("builtin_function_or_method" if called else "method")
    assert answers == "[array([2., 4., 6., 8.], dtype=float32), {'count': array(1)}, None] [ 4.  8. 12. 16.] w n"
    assert errors == ["FeedError", "FeedError", "StaticGradError", "BoundsError"]
    count, *names = modules.split()
    own = [name for name in names if name.startswith("staticgrad")]
    assert len(own) < 45, own
    assert int(count) - len(own) < 40, names


def test_a_program_runs_where_there_is_no_compiler(called: bool, tmp_path: Path) -> None:
    """The packages ``staticgrad`` and ``staticgrad.runtime`` alone, in a folder of their own."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "staticgrad", tmp_path / "there" / "staticgrad", ignore=ignored)
    shutil.copytree(ROOT / "runtime", tmp_path / "there" / "staticgrad" / "runtime", ignore=ignored)
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'there')!r})\n" + BARE.replace("REFUSES_COMPILER", "False")
    code += f"assert sg.__file__.startswith({str(tmp_path)!r})"
    code = code.replace("import staticgrad as sg", f"{CUT}\nimport staticgrad as sg")
    answers, _, _, *errors = bare(tmp_path, code, {}, called)
    assert answers.startswith("[array([2., 4., 6., 8.]")
    assert len(errors) == 4


# An editable installation finds the package by itself.
CUT = "sys.meta_path[:] = [finder for finder in sys.meta_path if 'editable' not in repr(finder).lower()]"


# -- files that are refused -------------------------------------------------------------------------------------------


@pytest.fixture
def unmapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be mapped in this test."""

    def refuse(*_: object) -> None:
        pytest.fail("code was mapped")

    monkeypatch.setattr(LoadedImage, "__init__", refuse)


def changed(content: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """A file with another header, whose digest is right."""
    _, _, _, version, length = program_file._PREFIX.unpack_from(content)
    begin = program_file._PREFIX.size
    header = json.loads(content[begin : begin + length])
    change(header)
    return with_header(content, json.dumps(header).encode(), version)


def with_header(content: bytes, text: bytes, version: int = program_file.VERSION) -> bytes:
    *_, length = program_file._PREFIX.unpack_from(content)
    rest = content[program_file._PREFIX.size + length :]
    size = program_file._PREFIX.size + len(text) + len(rest)
    head = program_file._PREFIX.pack(program_file.MAGIC, bytes(32), size, version, len(text))
    return program_file.sealed(head + text + rest)


@pytest.mark.usefixtures("unmapped")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda whole: b"", "not a program that staticgrad exported"),
        (lambda whole: b"\x7fELF" + bytes(100), "not a program that staticgrad exported"),
        (lambda whole: whole[:20], "damaged"),
        (lambda whole: whole[:-1], "damaged.*expected .* bytes"),
        (lambda whole: whole + b"\0", "damaged.*expected .* bytes"),
        (lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]), "another digest"),
        (lambda whole: with_header(whole, b"{"), "damaged"),
        (lambda whole: with_header(whole, b"[" * 100_000), "damaged"),
        (lambda whole: with_header(whole, b'{"a": 1, "a": 1}'), "twice"),
        (lambda whole: with_header(whole, b'{"staticgrad": "9.1"}', 2), "format 2, which staticgrad 9.1 wrote"),
        (lambda whole: changed(whole, lambda h: h["images"].clear()), "no list of images"),
        (lambda whole: changed(whole, lambda h: h["images"].append(h["images"][0])), "section"),
        (lambda whole: changed(whole, lambda h: h.update(state=[0, 64])), "section"),
        (lambda whole: changed(whole, lambda h: h.update(state=[0, True])), "section"),
        (lambda whole: changed(whole, lambda h: h["interface"]["state"].update(bytes=256)), "state of 128 bytes"),
        (lambda whole: changed(whole, lambda h: h["interface"]["entries"][0].update(signature="ode")), "slots"),
        (lambda whole: changed(whole, lambda h: h["interface"]["entries"][0].update(workspace=64)), "workspace"),
        (lambda whole: changed(whole, lambda h: h["interface"]["entries"][0].update(name="a b")), "name 'a b'"),
        (lambda whole: changed(whole, lambda h: h.update(system="plan9")), "expected system linux"),
        (lambda whole: changed(whole, lambda h: h.update(byte_order="big")), "expected byte order little"),
        (lambda whole: changed(whole, lambda h: h.update(page_bytes=16384)), "page bytes 4096"),
        (lambda whole: changed(whole, lambda h: h.update(pointer_bytes=4)), "pointer bytes 8"),
        (lambda whole: changed(whole, lambda h: h["images"][0].update(arch="riscv64")), r"generic \(riscv64"),
        (lambda whole: changed(whole, lambda h: h["images"][0].update(needs=["amx"])), "lacking here: amx"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit_is_refused(content: Callable[[bytes], bytes], message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "file", content(handmade.content()))
    with pytest.raises(sg.FormatError, match=rf"(?s){path}.*{message}"):
        sg.load(path)


def test_code_that_does_not_fit_its_interface_is_refused(tmp_path: Path) -> None:
    def rename(header: dict[str, Any]) -> None:
        header["interface"]["entries"][1]["name"] = "other"

    with pytest.raises(sg.FormatError, match="there is no code of other"):
        sg.load(written(tmp_path / "file", changed(handmade.content(), rename)))


def test_the_widest_target_that_the_machine_runs_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATICGRAD_TARGET", raising=False)
    path = written(tmp_path / "file", handmade.content(targets=("generic", "avx512", "avx2")))
    assert sg.load(path).target == next(name for name in ("avx512", "avx2", "generic") if runs_here(TARGETS[name]))
    for name in ("avx2", "generic"):
        if runs_here(TARGETS[name]):
            monkeypatch.setenv("STATICGRAD_TARGET", name)
            loaded = sg.load(path)
            assert loaded.target == name
            np.testing.assert_array_equal(loaded.scale(np.eye(2)), 3 * np.eye(2))
    monkeypatch.delenv("STATICGRAD_TARGET")
    monkeypatch.setattr(program_file, "told_features", lambda: frozenset(TARGETS["avx2"].isa.needs))
    assert program_file.load_image(program_file.parse(path.read_bytes(), "file"), "file")[0] in ("avx2", "generic")
    monkeypatch.setattr(program_file, "told_features", lambda: None)
    assert sg.load(path).target == "generic"


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sg.load(tmp_path / "nothing")
    with pytest.raises(sg.FormatError, match="actual a directory"):
        sg.load(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(sg.FormatError, match="actual a FIFO"):
        sg.load(tmp_path / "fifo")
    with pytest.raises(sg.FormatError, match="actual ''"):
        sg.load("")


@pytest.mark.usefixtures("unmapped")
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(mode: int, tmp_path: Path) -> None:
    path = written(tmp_path / "file", handmade.content())
    path.chmod(mode)
    with pytest.raises(sg.FormatError, match=rf"mode {mode:o}.*\n.*digest=.*\n.*{digest(path)}"):
        sg.load(path)


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "file", handmade.content())
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner:
        with pytest.raises(sg.FormatError, match=f"user {owner} owns the file, neither user {owner + 1}"):
            sg.load(path)
    else:
        assert len(sg.load(path)) == 3  # root's
        os.chown(path, 4321, -1)
        with pytest.raises(sg.FormatError, match="user 4321 owns the file, neither user 1"):
            sg.load(path)
    assert len(sg.load(path, digest=digest(path))) == 3


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_digest_accepts_one_file_whoever_wrote_it(tmp_path: Path) -> None:
    path = written(tmp_path / "file", handmade.content())
    path.chmod(0o666)
    known = digest(path)
    assert program_file.digest_of(path.read_bytes()) == known
    assert len(sg.load(path, digest=known)) == len(sg.load(path, digest=known.upper())) == 3
    path.write_bytes(handmade.content(SCALE))
    with pytest.raises(sg.FormatError, match=f"expected digest {known}\n  actual   {digest(path)}"):
        sg.load(path, digest=known)
    for wrong in ("", known[:-1], known[:-1] + "g", "0x" + known):
        with pytest.raises(sg.FormatError, match="64 hexadecimal digits"):
            sg.load(path, digest=wrong)


def test_what_is_written_may_be_loaded_whatever_the_umask(tmp_path: Path) -> None:
    path, content = tmp_path / "file", handmade.content()
    before = os.umask(0)
    try:
        assert program_file.write(path, content) == digest(path)
        assert path.stat().st_mode & 0o777 == 0o644
        assert len(sg.load(path)) == 3
        path.chmod(0o666)
        program_file.write(path, content)
        assert path.stat().st_mode & 0o777 == 0o644
        path.chmod(0o600)
        program_file.write(path, content)
        assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    written(tmp_path / "file", handmade.content())
    (tmp_path / "link").symlink_to("file")
    assert len(sg.load(tmp_path / "link")) == 3


# -- damaged files ----------------------------------------------------------------------------------------------------


def mutations(content: bytes, draw: random.Random) -> Iterator[bytes]:
    """Damaged files without an end, every other one with the digest and the length that it has."""
    while True:
        damaged = bytearray(content)
        for _ in range(draw.choice((1, 1, 1, 2, 5))):
            _damage(damaged, draw)
        yield bytes(damaged)
        if len(damaged) > program_file._PREFIX.size:
            if draw.random() < 0.8:
                damaged[:8] = program_file.MAGIC
                damaged[40:48] = len(damaged).to_bytes(8, "little")
                damaged[48:52] = (1).to_bytes(4, "little")
            yield program_file.sealed(bytes(damaged))


def _damage(content: bytearray, draw: random.Random) -> None:
    """One change, more often in the first kilobytes, which tell where the others are."""
    end = len(content) if draw.random() < 0.3 else min(len(content), 4096)
    at, width = draw.randrange(end + 1), draw.choice((1, 1, 2, 8, 100))
    match draw.randrange(6):
        case 0 if at < len(content):
            content[at] ^= 1 << draw.randrange(8)
        case 1 if at < len(content):
            content[at] = draw.choice(b'\0\xff09-,:[]{}"\\')
        case 2 if draw.random() < 0.3:
            del content[at:]
        case 3:
            content[at:at] = draw.randbytes(width)
        case 4:
            other = draw.randrange(end + 1)
            content[at : at + width], content[other : other + width] = (
                content[other : other + width],
                content[at : at + width],
            )
        case _:
            del content[at : at + width]


ODD: tuple[Any, ...] = (
    -1, 0, 1, 63, 64, 4096, 2**31, 2**46, 2**46 + 1, 2**63, -(2**63), 2**64, 2**200, True, None, 1.5, "", "bounds",
    "memcpy", "no such", "a\0b", (), ((), ()), (0, 0, 0), (0, -1, 2**70), ("dict", (1,), 0), ("list",),
)  # fmt: skip
ODD_OF_JSON = (*ODD, "\ud800", {"a": 1})


def forgeries(content: bytes, draw: random.Random) -> Iterator[bytes]:
    """Files without an end that are whole, but of which parts of the header or of the code say something else."""
    prefix = program_file._PREFIX.size
    *_, length = program_file._PREFIX.unpack_from(content)
    header = json.loads(content[prefix : prefix + length])
    state, code = (
        content[prefix + length :][slice(*ends)] for ends in (header["state"], header["images"][0]["section"])
    )
    image_data = plain.load(code)
    while True:
        told, made = copy.deepcopy(header), image_data
        for _ in range(draw.choice((1, 1, 2, 3))):
            if draw.random() < 0.5:
                told = _forged(told, draw, ODD_OF_JSON)
            else:
                made = _forged(made, draw, ODD)
        section = plain.dump(made)
        if isinstance(told, dict) and isinstance(told.get("images"), list) and draw.random() < 0.9:
            for one in told["images"][:1]:
                if isinstance(one, dict):
                    one["section"] = [len(state), len(state) + len(section)]
        text = json.dumps(told).encode()
        size = prefix + len(text) + len(state) + len(section)
        head = program_file._PREFIX.pack(program_file.MAGIC, bytes(32), size, 1, len(text))
        yield program_file.sealed(head + text + state + section)


def _forged(value: Any, draw: random.Random, odd: tuple[Any, ...]) -> Any:
    """A nest with another value in some place."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, (list, tuple)) else ()
    if not keys or draw.random() < 0.05:
        if isinstance(value, int) and draw.random() < 0.5:
            return value + draw.choice((-1, 1, 8, 64, 4096, 2**32))
        return copy.deepcopy(draw.choice(odd))
    key = draw.choice(list(keys))
    if isinstance(value, tuple):
        return (*value[:key], _forged(value[key], draw, odd), *value[key + 1 :])
    if draw.random() < 0.05:
        del value[key]
    elif isinstance(value, list) and draw.random() < 0.05:
        value.append(copy.deepcopy(value[key]))
    else:
        value[key] = _forged(value[key], draw, odd)
    return value


def load_mutations(damaged: Iterator[bytes], count: int) -> int:
    """Parse and map damaged files; returns how many were taken."""
    taken = 0
    for content in itertools.islice(damaged, count):
        try:
            instance = ProgramInstance(ProgramCode(program_file.parse(content, "damaged"), "damaged"))
        except sg.FormatError as error:
            str(error).encode()
            continue
        repr(LoadedProgram(instance)).encode()
        taken += 1
    return taken


WAYS = (mutations, forgeries)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_damaged_files_are_a_format_error(way: Callable[[bytes, random.Random], Iterator[bytes]]) -> None:
    taken = load_mutations(way(handmade.content(called=way is mutations), random.Random(0)), 1000)
    assert 0 < taken < 700  # some have other machine code or other names, and the right digest


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_many_damaged_files_are_a_format_error(
    way: Callable[[bytes, random.Random], Iterator[bytes]], seed: int
) -> None:
    assert 0 < load_mutations(way(handmade.content(), random.Random(seed)), 10_000) < 7000


def test_every_byte_of_a_file_is_guarded() -> None:
    content = handmade.content(SCALE)
    for at in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[at] ^= 0x20
        with pytest.raises(sg.FormatError):
            program_file.parse(bytes(damaged), "damaged")


# -- the format -------------------------------------------------------------------------------------------------------


def test_a_file_of_the_first_format_runs(tmp_path: Path) -> None:
    program = sg.load(written(tmp_path / "file", FORMAT_1.read_bytes()))
    assert (program.name, program.target, list(program)) == ("handmade", "generic", ["step", "read", "scale"])
    w, counted, nothing = program.step(X, 2)
    assert (w.tolist(), counted["count"], nothing) == ([2, 4, 6, 8], 1, None)
    assert program.read().tolist() == [4, 8, 12, 16]
    assert program.scale(np.eye(2)).tolist() == [[3, 0], [0, 3]]
    with pytest.raises(sg.BoundsError, match=r"take: index 9 is out of range for size 3(?s:.*)train.py:8: rows\[i\]"):
        program.step(X, 9)


def test_info_tells_what_a_file_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from staticgrad.tools import cli

    path = written(tmp_path / "file", handmade.content())
    path.chmod(0o666)  # nothing of it is run
    assert cli.main(["info", str(path)]) == 0
    printed = capsys.readouterr().out
    assert digest(path) in printed
    entry = "step(x: float32[4], i: int64[])"
    for text in (f"written by staticgrad {sg.__version__}", "generic (x86_64)", entry, "w: float32[4]", "system linux"):
        assert text in printed
    path.write_bytes(b"nothing")
    assert cli.main(["info", str(path)]) == 2
    assert "expected a graph, a checkpoint" in capsys.readouterr().err


# -- what executables export ------------------------------------------------------------------------------------------


def test_training_goes_on_bit_for_bit(g: sg.Graph, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, t = sg.placeholder((32, 64), name="x"), sg.placeholder((32,), sg.int64, name="t")
    net = sg.nn.Sequential(sg.nn.Linear(64, 32), sg.nn.ReLU(), sg.nn.Dropout(0.2), sg.nn.Linear(32, 10))
    loss = sg.nn.cross_entropy(net(x), t)
    sess = sg.Session(g, seed=5)
    step = sess.compile([loss, sg.optim.Adam(lr=1e-3).minimize(loss)], [x, t])
    batches = [(rng.normal(size=(32, 64)).astype(np.float32), rng.integers(0, 10, 32)) for _ in range(50)]
    for batch in batches[:5]:
        step(*batch)
    step.export(tmp_path / "step", format="program", name="step")
    program = sg.load(tmp_path / "step")
    for batch in batches:
        expected, actual = step(*batch), program(*batch)
        assert expected[0].tobytes() == actual[0].tobytes()
        assert actual[1] is None
    program.save(tmp_path / "state")
    other = sg.Session(g)
    other.restore(tmp_path / "state")
    for variable in net.parameters():
        np.testing.assert_array_equal(other.get(variable), sess.get(variable))


def test_a_failed_run_leaves_the_state_as_a_session_does(g: sg.Graph, tmp_path: Path) -> None:
    x, t = sg.placeholder((4, 3), name="x"), sg.placeholder((4,), sg.int64, name="t")
    w = sg.Variable(np.ones((3, 5), np.float32), name="w")
    loss = sg.nn.cross_entropy(sg.nn.dropout(x, 0.5) @ w, t)
    step = sg.Session(g).compile([loss, sg.optim.SGD(lr=0.1).minimize(loss)], [x, t])
    step.export(tmp_path / "step", format="program")
    program = sg.load(tmp_path / "step")
    values = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    for labels in (np.arange(4), np.array([0, 1, 2, 5]), np.array([0, -7, 2, 9]), np.arange(1, 5)):
        failed = []
        for run in (step, program):
            try:
                failed.append(run(values, labels)[0].tobytes())
            except sg.BoundsError as error:
                failed.append(error.args[0])
        assert failed[0] == failed[1]


def test_entries_of_several_executables_share_the_state(g: sg.Graph, tmp_path: Path) -> None:
    x = sg.placeholder((3,), name="x")
    w = sg.Variable(np.ones(3, np.float32), name="w")
    add, shown = sg.assign(w, w + x), {"w": w * 2.0, "both": (w, sg.sum(w))}
    sess = sg.Session(g)
    entries = {"add": sess.compile(add, x), "show": sess.compile(shown, [])}
    sg.export(tmp_path / "both", entries, format="program")
    program = sg.load(tmp_path / "both")
    program.add([1, 2, 3])
    found = program.show()
    assert list(found) == ["w", "both"]
    assert found["w"].tolist() == [4, 6, 8]
    assert (found["both"][0].tolist(), found["both"][1]) == ([2, 3, 4], 9)
    assert sess.run(w).tolist() == [1, 1, 1]


def test_an_export_may_be_loaded_whatever_the_umask(g: sg.Graph, tmp_path: Path) -> None:
    x = sg.placeholder((3,), name="x")
    doubled = sg.Session(g).compile(x * 2, x)
    before = os.umask(0o002)
    try:
        report = doubled.export(tmp_path / "double", format="program")
    finally:
        os.umask(before)
    assert sg.load(tmp_path / "double")([1, 2, 3]).tolist() == [2, 4, 6]
    assert report.digest == digest(tmp_path / "double")


def test_an_entry_says_what_it_does_to_the_state(g: sg.Graph, tmp_path: Path) -> None:
    x, w = sg.placeholder((3,), name="x"), sg.Variable(np.ones(3, np.float32), name="w")
    sess = sg.Session(g)
    entries = {
        "pure": sess.compile(x * 2, x),
        "use": sess.compile(x * w, x),
        "change": sess.compile(sg.assign(w, w + x), x),
        "draw": sess.compile(sg.nn.dropout(x, 0.5), x),
    }
    sg.export(tmp_path / "entries", entries, format="program")
    program = sg.load(tmp_path / "entries")
    known = [(entry._code.uses_state, entry._code.writes_state) for entry in program.entries.values()]
    assert known == [(False, False), (True, False), (True, True), (True, True)]
