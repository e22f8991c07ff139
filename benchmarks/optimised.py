"""Executables whose calls are timed: they run optimised code."""

from __future__ import annotations

from typing import Any


def optimised(executable: Any) -> Any:
    """The executable, when its program runs optimised code; older versions have no other."""
    getattr(executable, "wait", lambda: None)()
    return executable
