"""Scripts that several processes run together: ``mpiexec`` of the MPI that mpi4py is installed with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PRELUDE = """
import numpy as np
import staticgrad as sg
d = sg.distributed
rank, size = d.rank(), d.size()
"""


def mpiexec() -> str:
    """The launcher beside the interpreter, or on the path; a test that needs it is skipped where there is none."""
    pytest.importorskip("mpi4py")
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        pytest.skip("there is no mpiexec")
    return found


def start(ranks: int, script: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """The script, begun in so many processes; what they print is piped."""
    text = PRELUDE + textwrap.dedent(script)
    command = [mpiexec(), "-n", str(ranks), sys.executable, "-W", "error", "-c", text, *arguments]
    known = {**os.environ, "STATICGRAD_THREADS": "1", **environment}
    return subprocess.Popen(command, env=known, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(running: subprocess.Popen[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """The end of what was started, which takes less than so many seconds."""
    try:
        out, err = running.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        running.kill()
        out, err = running.communicate()
        pytest.fail(f"not over after {seconds} s\n{out}\n{err}")
    return subprocess.CompletedProcess(running.args, running.returncode, out, err)


def run(ranks: int, script: str, *arguments: str, **environment: str) -> str:
    """The output of a script that succeeds."""
    done = finish(start(ranks, script, *arguments, **environment), 120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fail(ranks: int, script: str, *arguments: str, **environment: str) -> str:
    """The errors of a script that fails on all ranks."""
    done = finish(start(ranks, script, *arguments, **environment), 60)
    assert done.returncode != 0, done.stdout + done.stderr
    return done.stderr
