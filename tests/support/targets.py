"""The targets whose programs this machine runs: what tests that run them are parametrized over.

``EVERY`` has the small twins too: drawn programs, whose sizes are small, are there run in the ways of large ones.
``EXTENDED`` are those with instructions for products of short numbers, twins too; other programs are the same there.
"""

from __future__ import annotations

from staticgrad.compiler.machine.target import (
    EXTENDED_TARGETS,
    SMALL_EXTENDED,
    SMALL_TARGETS,
    TARGETS,
    current_target,
    runs_here,
)

HERE = [name for name, target in TARGETS.items() if runs_here(target)]
CURRENT = current_target().name  # for which programs are compiled, unless a test says otherwise
EXTENDED = [name for name, target in (EXTENDED_TARGETS | SMALL_EXTENDED).items() if runs_here(target)]
EVERY = [*HERE, *(name for name, target in SMALL_TARGETS.items() if runs_here(target))]
