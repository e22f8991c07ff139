"""The targets whose programs this machine runs: what tests that run them are parametrized over."""

from __future__ import annotations

from staticgrad.compiler.emit.target import TARGETS, runs_here

HERE = [name for name, target in TARGETS.items() if runs_here(target)]
