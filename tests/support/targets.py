"""The targets whose programs this machine runs: what tests that run them are parametrized over.

``EVERY`` has the small twins too: drawn programs, whose sizes are small, are there run in the ways of large ones.
"""

from __future__ import annotations

from staticgrad.compiler.emit.target import SMALL_TARGETS, TARGETS, runs_here

HERE = [name for name, target in TARGETS.items() if runs_here(target)]
EVERY = [*HERE, *(name for name, target in SMALL_TARGETS.items() if runs_here(target))]
