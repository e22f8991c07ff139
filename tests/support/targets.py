"""The targets whose programs this machine runs: what tests that run them are parametrized over.

``EVERY`` has the small twins too: drawn programs, whose sizes are small, are there run in the ways of large ones.
"""

from __future__ import annotations

from staticgrad.compiler.machine.target import SMALL_TARGETS, TARGETS, current_target, runs_here

HERE = [name for name, target in TARGETS.items() if runs_here(target)]
CURRENT = current_target().name  # for which programs are compiled, unless a test says otherwise
EVERY = [*HERE, *(name for name, target in SMALL_TARGETS.items() if runs_here(target))]
