"""An exception raised at one bytecode of the project's own, as a signal handler may raise one between any two."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any

import numpy as np


class Injected(BaseException):
    """As ``KeyboardInterrupt``: nothing catches it by mistake."""


class _Injector:
    """A trace function that raises at bytecode number ``at`` of functions that lie in one of ``files``."""

    def __init__(self, at: int, files: Collection[str]) -> None:
        self.left = at
        self.files = files
        self.has_raised = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        # What is raised in a finalizer is printed and lost, wherever it comes from.
        if frame.f_code.co_filename not in self.files or frame.f_code.co_name == "__del__":
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._trace

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode" and not self.has_raised:
            if not self.left:
                self.has_raised = True
                raise Injected
            self.left -= 1
        return self._trace


def ends_with_injection(action: Callable[[], object], at: int, files: Collection[str]) -> bool:
    """Run ``action`` with an exception at bytecode number ``at`` of ``files``; False when there are not so many."""
    injector = _Injector(at, files)
    before = sys.gettrace()
    sys.settrace(injector)
    try:
        with np.errstate():  # a bytecode of a with statement may be the one: NumPy's setting would not come back
            action()
    except Injected:
        pass
    finally:
        sys.settrace(before)
    # What is raised in one of the few bytecodes that leave an ``except`` clause ends it without Python's noticing: the
    # error that was handled would be the context of everything that this thread raises from now on.
    ctypes.pythonapi.PyErr_SetHandledException(ctypes.py_object(None))
    return injector.has_raised
