"""Memory of the process that exports and sessions give back: growth is counted in a process of its own, after calls
that fill what is kept once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read in /proc")

MOST_GROWTH = 20  # KiB a call: the pipeline of LLVM's passes that an export once lost took 160
WARM_UP, CALLS = 20, 40

SCRIPT = """
import ctypes, gc, sys
import numpy as np
import staticgrad as sg

def resident():  # KiB
    gc.collect()
    getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)(0)
    return int(open("/proc/self/statm").read().split()[1]) * 4

def growth(call):
    for _ in range({warm_up}):
        call()
    before = resident()
    for _ in range({calls}):
        call()
    return (resident() - before) / {calls}

graph = sg.Graph()
with graph:
    x = sg.placeholder((4,))
    y = sg.sum(sg.sin(x) * 3.0)
"""


def growth_of(call: str, folder: Path, calls: int = CALLS) -> float:
    """KiB by which a process grows at each call of the function ``call`` that a text defines."""
    script = SCRIPT.format(warm_up=WARM_UP, calls=calls) + call + "\nprint(growth(call))"
    child = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True, timeout=300
    )
    return float(child.stdout)


EXPORT = """
executable = sg.Session(graph).compile(y, x)
def call():
    executable.export("one.o", {how})
"""


def test_linking_an_export_keeps_no_memory_of_the_process(tmp_path: Path) -> None:
    call = """
from staticgrad.compiler.native.linked import link_modules
from staticgrad.compiler.machine.target import GENERIC
main = "define i64 @main(i64 %x) {\\n  ret i64 %x\\n}"
entry = "declare i64 @main(i64)\\ndefine i64 @entry(i64 %x) {\\n  %y = call i64 @main(i64 %x)\\n  ret i64 %y\\n}"
def call():
    assert link_modules({"f": [entry, main]}, [], GENERIC).code_bytes
"""
    assert growth_of(call, tmp_path) < MOST_GROWTH


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        "format='object'", "format='object', target='cortex-m4'", "format='shared'", "format='llvm'",
        "format='program'",
    ],
)  # fmt: skip
def test_an_export_keeps_no_memory_of_the_process(how: str, tmp_path: Path) -> None:
    assert growth_of(EXPORT.format(how=how), tmp_path) < MOST_GROWTH


def test_a_session_that_is_closed_keeps_no_memory_of_the_process(tmp_path: Path) -> None:
    call = """
def call():
    with sg.Session(graph) as session:
        assert session.compile(y, x)(np.zeros(4, np.float32)) == 0
"""
    assert growth_of(call, tmp_path, calls=100) < MOST_GROWTH


def test_a_program_that_is_loaded_keeps_no_memory_of_the_process(tmp_path: Path) -> None:
    call = """
sg.Session(graph).compile(y, x).export("one.sgp", format="program")
def call():
    assert sg.load("one.sgp")(np.zeros(4, np.float32)) == 0
"""
    assert growth_of(call, tmp_path, calls=100) < MOST_GROWTH
