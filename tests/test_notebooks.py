"""What somebody sees who works in a notebook: cells that run again, and where their lines are."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

import staticgrad as sg

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
