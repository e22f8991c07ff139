"""Two tiers: quick code runs first, optimised code takes its place between two calls, and no thread is left behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.compiler.native import codegen, tiers
from staticgrad.compiler.native.kernels import program_objects

THREAD = "staticgrad: optimised code"


class Gate:
    """Holds back the thread that makes optimised code until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = threading.Event()
        self.entered = threading.Event()
        make = codegen.objects_aside

        def held(*arguments: Any) -> list[bytes]:
            self.entered.set()
            assert self.opened.wait(60)
            return make(*arguments)

        monkeypatch.setattr(codegen, "objects_aside", held)

    def open(self) -> None:
        self.opened.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("STATICGRAD_CACHE", "0")
    monkeypatch.setenv("STATICGRAD_TIERS", "1")
    held = Gate(monkeypatch)
    yield held
    held.open()
    until_no_thread_is_left()


def until_no_thread_is_left() -> None:
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join(60)
            assert not thread.is_alive()


def network(rows: Any = 16) -> tuple[sg.Graph, sg.Tensor, list[Any]]:
    """A graph whose program is worth two tiers: its input, and a loss with a step of training."""
    with sg.Graph() as graph:
        x = sg.placeholder((rows, 20), name="x")
        y = sg.nn.Sequential(sg.nn.Linear(20, 30), sg.nn.Tanh(), sg.nn.Linear(30, 5))(x)
        loss = sg.mean(sg.nn.log_softmax(y, -1) ** 2)
        step = sg.optim.Adam(lr=1e-3).minimize(loss)
    return graph, x, [loss, y, step]


ROWS = np.random.default_rng(0).normal(size=(16, 20)).astype(np.float32)


def steps(executable: sg.Executable, count: int) -> list[Any]:
    return [array for _ in range(count) for array in executable(ROWS)[:2]]


def test_calls_enter_the_optimised_code_as_soon_as_it_is_there(gate: Gate) -> None:
    graph, x, fetches = network()
    with sg.Session(graph, seed=0) as session:
        executable = session.compile(fetches, [x])
        assert not executable.ready()
        found = steps(executable, 3)
        assert not executable.ready()
        gate.open()
        executable.wait()
        assert executable.ready()
        found += steps(executable, 3)
        assert session.compile_count == 1
    with sg.Session(graph, seed=0) as session:
        executable = session.compile(fetches, [x], wait=True)
        assert executable.ready()
        for a, b in zip(found, steps(executable, 6), strict=True):
            np.testing.assert_array_equal(a, b)


def test_threads_that_call_meanwhile_get_the_same_bits(gate: Gate) -> None:
    graph, x, (loss, y, _) = network()
    with sg.Session(graph, seed=0) as session:
        executable = session.compile([loss, y], [x])
        want, found, stop = executable(ROWS), [0] * 4, threading.Event()

        def call(number: int) -> None:
            while not stop.is_set():
                for a, b in zip(executable(ROWS), want, strict=True):
                    np.testing.assert_array_equal(a, b)
                found[number] += 1

        threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        gate.open()
        executable.wait()
        before = list(found)
        while min(after - count for after, count in zip(found, before, strict=True)) < 5:
            assert all(thread.is_alive() for thread in threads)
            executable(ROWS)
        stop.set()
        for thread in threads:
            thread.join()


def test_a_program_of_ranges_and_tapes_have_two_tiers(gate: Gate) -> None:
    graph, x, (loss, y, _) = network(None)
    with sg.Session(graph, seed=0) as session:
        executable = session.compile([loss, y], [x])
        assert executable.ready()  # there is no program yet
        quick = executable(ROWS)
        assert not executable.ready()
        tape = session.forward(loss, {x: ROWS})
        tape.backward(loss)
        gradients = [session.grad(v) for v in graph.variables.values()]
        gate.open()
        executable.wait()
        for a, b in zip(executable(ROWS), quick, strict=True):
            np.testing.assert_array_equal(a, b)
        until_no_thread_is_left()
        session.zero_grad()
        tape = session.forward(loss, {x: ROWS})
        tape.backward(loss)
        for v, gradient in zip(graph.variables.values(), gradients, strict=True):
            np.testing.assert_array_equal(session.grad(v), gradient)


def test_the_switch_and_what_is_called_from_elsewhere_have_optimised_code_alone(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    graph, x, (loss, y, _) = network()
    with sg.Session(graph, seed=0) as session:
        executable = session.compile([loss, y], [x])
        executable.cfunc("slots")
        executable.export(tmp_path / "net.sgp", format="program")
        assert executable.profile(ROWS).seconds > 0
        monkeypatch.setenv("STATICGRAD_TIERS", "0")
        assert session.compile([y, loss], [x]).ready()
        assert session.compile([y], [x], autotune=True).ready()


def test_small_programs_and_long_calls_have_optimised_code_at_once(gate: Gate) -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((4,))
        large = sg.placeholder((3000, 3000))
        product = large @ large
    with sg.Session(graph) as session:
        assert session.compile(x * 2, [x]).ready()
        assert session.compile(product, [large]).ready()


def test_a_function_of_many_lines_is_optimised_at_once() -> None:
    lines = "\n".join(f"  %v{n} = add i64 {n}, 1" for n in range(tiers.MOST_LINES))
    assert tiers.may_be_quick("define void @a() {\n  ret void\n}\n" * 2000)
    assert not tiers.may_be_quick(
        f"define void @a() {{\n  ret void\n}}\ndefine void @b() {{\n{lines}\n  ret void\n}}\n"
    )


def test_functions_in_which_calls_spend_their_time_are_optimised_at_once(gate: Gate) -> None:
    """A product of 800 rows in a program of many small ops: its tiles lie in modules of their own, the first ones."""
    with sg.Graph() as graph:
        x = sg.placeholder((800, 800), name="x")
        product = x @ x
        y = product[:3, :4]
        for n in range(1, 30):
            y = sg.sort(sg.cumulative_sum(y * float(n), axis=1), axis=0)
        z = sg.sum(sg.linalg.inv(sg.concat([y, y[:1]], 0) + 100.0 * np.eye(4, dtype=np.float32)))
    with sg.Session(graph, num_threads=1) as session:
        executable = session.compile([product, z], [x])
        assert not executable.ready()
        program = executable._programs.native().program
        assert program.hot_modules is not None
        assert 0 < program.hot_modules < len(program.modules)
        hot = "".join(program.modules[: program.hot_modules])
        assert "@tile" in hot
        assert "@main" not in re.sub("^declare.*$", "", hot, flags=re.MULTILINE)
        found = executable(np.eye(800, dtype=np.float32))
        gate.open()
        executable.wait()
        for a, b in zip(executable(np.eye(800, dtype=np.float32)), found, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_module_that_is_optimised_already_is_not_made_twice(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two modules one has a function that is too long for quick code."""
    asked: list[int] = []
    held = codegen.objects_aside

    def counted(texts: Any, target: Any) -> list[bytes]:
        asked.append(len(texts))
        return held(texts, target)

    monkeypatch.setattr(codegen, "objects_aside", counted)
    body = "\n".join(f"  %v{n} = add i32 {n}, 1" for n in range(tiers.MOST_LINES + 1))
    main = "define i32 @main(ptr %a, ptr %b, ptr %c) {\n  %x = call i32 @other(i32 3)\n  ret i32 %x\n}\n"
    other = f"define hidden i32 @other(i32 %n) {{\n{body}\n  %y = mul i32 %n, 7\n  ret i32 %y\n}}\n"
    texts, target = (f"declare i32 @other(i32)\n{main}", other), sg.Session().compiler.options().target
    code = tiers.TieredCode(program_objects(texts, target), tuple(map(tiers.may_be_quick, texts)), target, None)
    call = np.ctypeslib.ctypes.CFUNCTYPE(np.ctypeslib.ctypes.c_int, *[np.ctypeslib.ctypes.c_void_p] * 3)
    function = call(code.address("main"))
    assert function(None, None, None) == 21
    gate.open()
    code.wait()
    assert function(None, None, None) == 21
    assert asked == [1]
    with pytest.raises(KeyError):
        code.address("word")


def test_code_that_cannot_be_made_leaves_the_quick_code_and_is_told(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> list[bytes]:
        raise RuntimeError("no room")

    monkeypatch.setattr(codegen, "objects_aside", refuse)
    graph, x, fetches = network()
    with sg.Session(graph, seed=0) as session:
        executable = session.compile(fetches, [x])
        first = executable(ROWS)[0]
        with pytest.raises(RuntimeError, match="optimised code"):
            executable.wait()
        assert not executable.ready()
        assert executable(ROWS)[0] != first  # it goes on training
    monkeypatch.undo()


def test_set_up_is_reported(gate: Gate) -> None:
    graph, x, fetches = network()
    with sg.Session(graph, seed=0) as session:
        executable = session.compile(fetches, [x])
        setup = executable.setup
        assert (setup.compiled, setup.found_in_memory, setup.found_on_disk) == (1, 0, 0)
        assert not setup.is_ready
        assert "not ready yet" in str(setup)
        assert {"cut", "machine code", "emit text"} <= setup.phases.keys()
        assert setup.seconds == pytest.approx(sum(setup.phases.values()))
        gate.open()
        executable.wait()
        setup = executable.setup
        assert setup.is_ready
        assert setup.optimized_seconds > 0
        again = session.compile(fetches, [x]).setup
        assert (again.compiled, again.found_in_memory) == (0, 1)


CHILD = """
import os, sys, threading
import numpy as np
import staticgrad as sg
with sg.Graph() as graph:
    x = sg.placeholder((16, 20), name="x")
    y = sg.nn.Sequential(sg.nn.Linear(20, 30), sg.nn.Tanh(), sg.nn.Linear(30, 5))(x)
    loss = sg.mean(sg.nn.log_softmax(y, -1) ** 2)
    step = sg.optim.Adam(lr=1e-3).minimize(loss)
session = sg.Session(graph, seed=0)
exe = session.compile([loss, step], [x])
"""


def in_child(rest: str, folder: Path, **switches: str) -> str:
    """The output of a process that compiles a program and then does the rest."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STATICGRAD_")}
    environment |= {"STATICGRAD_CACHE_DIR": str(folder), **{f"STATICGRAD_{k}": v for k, v in switches.items()}}
    done = subprocess.run(
        [sys.executable, "-c", CHILD + rest], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def test_a_process_that_ends_at_once_has_kept_its_program(tmp_path: Path) -> None:
    assert in_child("print(exe.setup.compiled)", tmp_path) == "1"
    assert in_child("print(exe.setup.found_on_disk, exe.ready())", tmp_path) == "1 True"


def test_a_process_that_keeps_nothing_ends_without_the_rest(tmp_path: Path) -> None:
    rest = """
from staticgrad.compiler.native import codegen
made = codegen.objects_aside
def told(*arguments):
    print("made")
    return made(*arguments)
codegen.objects_aside = told
others = [session.compile([loss * n, step], [x]) for n in range(2, 6)]
print("end", flush=True)
"""
    told = in_child(rest, tmp_path, CACHE="0")
    assert told.endswith("end") or told.count("made") < 5


def test_a_forked_child_has_optimised_code(tmp_path: Path) -> None:
    rest = """
child = os.fork()
if child == 0:
    ok = exe.ready() and threading.active_count() == 1 and np.isfinite(exe(np.ones((16, 20), np.float32))[0])
    more = session.compile([loss * 2, step], [x])
    more.wait()
    os._exit(0 if ok and more.ready() else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), exe.ready())
"""
    assert in_child(rest, tmp_path, CACHE="0") == "0 True"


def test_closing_a_session_leaves_no_thread(gate: Gate) -> None:
    """What is being made is made, what has not begun is given up."""
    graph, x, fetches = network()
    session = sg.Session(graph, seed=0)
    first, second = session.compile(fetches, [x]), session.compile(fetches[:2], [x])
    assert gate.entered.wait(60)
    threading.Timer(0.1, gate.open).start()
    session.close()
    until_no_thread_is_left()
    assert first.ready()
    assert not second.ready()
