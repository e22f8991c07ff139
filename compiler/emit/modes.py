"""Modes: the ways in which planners have kernels run, counted as they are emitted, for tests and for whoever asks.

Every mode is named once, as a literal where kernels are emitted, so that the list of all can be read from the sources.
"""

from __future__ import annotations

from collections import Counter

taken: Counter[str] = Counter()  # of this process


def took(mode: str, is_so: bool = True) -> None:
    """Count a kernel that is emitted in this mode, if it ``is_so``."""
    if is_so:
        taken[mode] += 1
