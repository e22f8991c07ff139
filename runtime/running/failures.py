"""Failures: the exception of a program that has ended with a status.

Input: a loaded program, the status, and the frame of the call. Output: the exception that the user sees, with the line
that declared what has failed.
"""

from __future__ import annotations

import numpy as np

from staticgrad.base.errors import NumericsError, StaticGradError
from staticgrad.base.extents import value_at
from staticgrad.compiler.binary import Binary
from staticgrad.runtime.running.frames import CallFrame


def error_of(binary: Binary, status: int, frame: CallFrame) -> BaseException:
    """The exception of a call with ``frame`` that has ended with ``status``, which is not 0."""
    checks = binary.interface.checks
    raised = frame.raised.copy()
    frame.raised.clear()
    if not 0 < status <= len(checks):
        return StaticGradError(f"the program ended with the unknown status {status}")
    offset = checks[status - 1].offset
    extremes = frame.arena[offset : offset + 16].copy()
    check = binary.program.checks[status - 1]
    if check.kind == "bounds":
        from staticgrad.ops.interpreter import bounds_error

        smallest, largest = map(int, extremes.view(np.int64))
        size = value_at(check.size, frame.sizes.tolist())
        return bounds_error(check.message, size, smallest, largest, check.source, check.wraps)
    if check.kind == "collective":
        from staticgrad.runtime.running.mpi import failure

        return StaticGradError(f"{check.message}: {failure(frame.collectives, frame)}", source=check.source)
    if check.kind == "callback":
        return raised[-1] if raised else StaticGradError(check.message, source=check.source)
    if check.kind == "numerics":
        return NumericsError(check.message, source=check.source)
    return StaticGradError(f"assertion failed: {check.message}", source=check.source)
