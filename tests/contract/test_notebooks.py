"""What somebody sees who works in a notebook: cells that run again, where their lines are, how compilations go on."""

from __future__ import annotations

import io
import linecache
import sys
import threading
import warnings
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base import phases, progress
from staticgrad.base.progress import Progress, Terminal

CELL = "import staticgrad as sg\nw = sg.Variable([1.0], name='w')\n"


def run_cell(code: str, file: str = "<kernel>/17.py") -> None:
    exec(compile(code, file, "exec"), {})


@pytest.fixture
def ipython(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A stand-in for IPython: the number of the last execution of each cell, by the file that its code is said to be
    from."""
    numbers: dict[str, int] = {}
    module = ModuleType("IPython")

    def format_code_name(file: str) -> tuple[str, str] | None:
        return ("Cell", f"In[{numbers[file]}]") if file in numbers else None

    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=format_code_name))
    monkeypatch.setattr(module, "get_ipython", lambda: shell, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", module)
    return numbers


def test_a_cell_that_runs_again_says_how_to_begin_it(g: sg.Graph) -> None:
    run_cell(CELL)
    with pytest.raises(sg.GraphError, match=r"the same line declared it before.*sg\.reset_default_graph\(\)"):
        run_cell(CELL)


def test_so_does_a_cell_that_was_changed(g: sg.Graph, ipython: dict[str, int]) -> None:
    ipython |= {"<kernel>/17.py": 3, "<kernel>/18.py": 4}
    run_cell(CELL)
    with pytest.raises(sg.GraphError, match=r"another cell declared it.*sg\.Graph\(\)"):
        run_cell(CELL, "<kernel>/18.py")


def test_a_cell_that_was_changed_and_makes_its_net_again_is_warned(g: sg.Graph, ipython: dict[str, int]) -> None:
    ipython |= {"<kernel>/17.py": 3, "<kernel>/18.py": 4}
    names: dict[str, object] = {"sg": sg}
    cell = "net = sg.nn.Sequential(sg.nn.Linear(2, 1))\ny = sg.Session().run(net([[1.0, 2.0]]))\n"
    exec(compile(cell, "<kernel>/17.py", "exec"), names)
    with pytest.warns(
        sg.DuplicateLayerWarning, match=r"this one before a change.*'0\.weight'.*'sequential\.0\.weight'"
    ):
        exec(compile(cell.replace("1.0, 2.0", "3.0, 4.0"), "<kernel>/18.py", "exec"), names)


DECLARING = "sg.reset_default_graph()\nx = sg.placeholder((2,), name='x')\nw = sg.Variable([1.0, 2.0])\ny = x * w\n"


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_session_from_before_a_cell_ran_again_says_so(is_changed: bool, ipython: dict[str, int]) -> None:
    ipython |= {"<kernel>/17.py": 3, "<kernel>/18.py": 4}
    names: dict[str, Any] = {"sg": sg}
    exec(compile(DECLARING, "<kernel>/17.py", "exec"), names)
    x, sess = names["x"], sg.Session()
    exec(compile(DECLARING, "<kernel>/18.py" if is_changed else "<kernel>/17.py", "exec"), names)
    what = "another cell declared it" if is_changed else "the same line declared it before"
    for use in (
        lambda: sess.run(names["y"], {x: [1.0, 2.0]}),
        lambda: sess.run(names["y"], {names["x"]: [1.0, 2.0]}),
        lambda: sess.compile(names["y"], [x]),
        lambda: sess.get(names["w"]),
        lambda: sess.grad(names["w"]),
    ):
        with pytest.raises((sg.FeedError, sg.FetchError), match=rf"{what}(.|\n)*make a new session, sg\.Session\(g\)"):
            use()
    with pytest.raises(sg.FeedError) as caught:
        sess.run(sg.constant(1.0), {sg.placeholder((3,), name="x"): [0.0] * 3})  # of another line
    assert "make a new session" not in str(caught.value)


def test_two_lines_of_a_program_are_told_nothing_of_notebooks(g: sg.Graph) -> None:
    sg.Variable([1.0], name="w")
    with pytest.raises(sg.GraphError, match="exists already") as caught:
        sg.Variable([1.0], name="w")
    assert "in a notebook" not in str(caught.value)


def test_lines_of_cells_are_named_as_ipython_names_them(g: sg.Graph, ipython: dict[str, int]) -> None:
    run_cell(CELL)
    source = g.variables["w"].source
    assert str(source) == "<kernel>/17.py:2"
    ipython["<kernel>/17.py"] = 3
    assert str(source) == "Cell In[3]:2"


def test_warnings_are_located_in_the_cell_and_quote_its_line(g: sg.Graph, ipython: dict[str, int]) -> None:
    ipython["<kernel>/17.py"] = 3
    cell = "import staticgrad as sg\nw = sg.Variable([1.0])\nw -= 0.5\n"
    lines = cell.splitlines(keepends=True)
    linecache.cache["<kernel>/17.py"] = len(cell), None, lines, "<kernel>/17.py"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_cell(cell)
    (found,) = caught
    text = warnings.formatwarning(found.message, found.category, found.filename, found.lineno)
    assert text.startswith("Cell In[3]:3: UpdateWarning: ")
    assert text.endswith("\n  w -= 0.5\n")


# -- progress ---------------------------------------------------------------------------------------------------------


class Screen(io.StringIO):
    """A stream that somebody reads."""

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """What stood in the line, one after the other."""
        return [text.rstrip() for text in self.getvalue().split("\r")[1:]]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Standard error is a terminal, and the line is written at once."""
    stream = Screen()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream, modules=sys.modules))
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "PACE", 0.0)
    monkeypatch.setenv("STATICGRAD_PROGRESS", "1")
    monkeypatch.setenv("STATICGRAD_CACHE", "0")
    return stream


def clock(*seconds: float) -> Iterator[float]:
    return iter(seconds)


def test_a_line_is_written_after_two_seconds_and_erased() -> None:
    stream, times = Screen(), clock(10.0, 11.9, 12.0, 12.1, 13.6)
    line = Progress(12_345, Terminal(stream), lambda: next(times))
    for name in ("lower", "machine code", "machine code", "link"):
        line(name)
    line.erase()
    assert stream.lines == ["compiling: 12,345 ops, machine code … 2 s", "compiling: 12,345 ops, link … 4 s", "", ""]
    widths = [len(text) for text in stream.getvalue().split("\r")[1:]]
    assert widths == [widths[0]] * 3 + [0]  # what was longer is covered


def test_a_short_compilation_writes_nothing() -> None:
    stream, times = Screen(), clock(0.0, 1.9)
    line = Progress(1, Terminal(stream), lambda: next(times))
    line("lower")
    line.erase()
    assert stream.getvalue() == ""


def test_a_stream_that_is_gone_ends_no_compilation() -> None:
    stream, times = Screen(), clock(0.0, 9.0)
    line = Progress(1, Terminal(stream), lambda: next(times))
    stream.close()
    line("lower")
    line.erase()


def compiled() -> None:
    with sg.Graph() as g:
        x = sg.placeholder((3,))
        y = sg.sum(sg.tanh(x) + 1)
    assert sg.Session(g).run(y, {x: np.zeros(3, np.float32)}) == 3


def test_a_compilation_tells_its_phases_on_a_terminal(terminal: Screen) -> None:
    compiled()
    assert any("lower" in line for line in terminal.lines)
    assert any("machine code" in line for line in terminal.lines)
    assert terminal.lines[-1] == ""


def test_a_compilation_that_fails_leaves_no_line(terminal: Screen) -> None:
    with pytest.raises(KeyboardInterrupt), progress.shown(7), phases.phase("lower"):
        raise KeyboardInterrupt
    assert [line for line in terminal.lines if line] == ["compiling: 7 ops, lower … 0 s"]
    assert terminal.lines[-1] == ""
    with phases.phase("lower"):  # and nobody listens any more
        pass
    assert len(terminal.lines) == 3


@pytest.mark.parametrize(("switch", "value"), [("PROGRESS", "0"), ("DEBUG", "1"), ("PRINT_AFTER", "lower")])
def test_switches_silence_it(switch: str, value: str, terminal: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"STATICGRAD_{switch}", value)
    compiled()
    assert "compiling:" not in terminal.getvalue()


def test_other_threads_and_files_get_no_line(terminal: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    thread = threading.Thread(target=compiled)
    thread.start()
    thread.join()
    assert terminal.getvalue() == ""
    file = io.StringIO()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=file, modules=sys.modules))
    compiled()
    assert file.getvalue() == ""


def test_a_notebook_keeps_nothing_of_it(
    terminal: Screen, ipython: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs: list[str] = []

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> SimpleNamespace:
        assert (raw, display_id, outputs) == (True, True, [])
        outputs.append(data["text/plain"])
        return SimpleNamespace(update=lambda data, raw: outputs.append(data["text/plain"]))

    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    module = ModuleType("IPython.display")
    monkeypatch.setattr(module, "display", display, raising=False)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    compiled()
    assert any("machine code" in text for text in outputs)
    assert outputs[-1] == ""
    assert terminal.getvalue() == ""
