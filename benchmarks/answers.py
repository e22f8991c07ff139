"""Whether an answer is right: who says so, and how near it has to come."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
from peers import PEERS
from workloads import Workload

Answers = list[list[float]]


def reference_peer(workload: Workload, peers: Sequence[str]) -> str | None:
    """Who answers in float64: NumPy where it covers the workload, else PyTorch if it is among ``peers`` or here."""
    if PEERS["numpy"].covers(workload):
        return "numpy"
    return "torch" if "torch" in peers or missing("torch", sys.executable) is None else None


def mismatch(actual: Answers, expected: Answers, tolerance: float) -> str | None:
    """Where an answer leaves the reference by more than the tolerance."""
    if [len(a) for a in actual] != [len(e) for e in expected]:
        sizes = [len(e) for e in expected]
        return f"expected {len(expected)} results of sizes {sizes}, actual {[len(a) for a in actual]}"
    for number, (a, e) in enumerate(zip(actual, expected, strict=True)):
        error = float(np.max(np.abs(np.subtract(a, e)))) / max(float(np.max(np.abs(e))), 1e-30)
        if not error <= tolerance:
            return f"result {number}: relative error {error:.1e}, allowed {tolerance:.0e}"
    return None


def missing(peer: str, python: str) -> str | None:
    """Why a peer cannot be measured with that interpreter, in one line; None if it can."""
    entry = PEERS[peer]
    absent = [module for module in entry.modules if not _importable(module, python)]
    if absent:
        return f"{', '.join(absent)} not installed for {python} (pip install {' '.join(absent)})"
    if entry.compiler and not any(map(shutil.which, ("g++", "clang++", "c++"))):
        return "needs a C++ compiler (g++)"
    return None


def _importable(module: str, python: str) -> bool:
    if python == sys.executable:
        return importlib.util.find_spec(module) is not None
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    try:
        return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0
    except OSError:
        return False
