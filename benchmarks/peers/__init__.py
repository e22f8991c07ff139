"""The peers: one module each, imported only in the process that measures it.

A module offers ``WORKLOADS`` (the names that it can do) and ``build(workload, threads, double)``, which declares the
program and gives a function that compiles it, if there is something to compile. That gives the call: arrays in the
order of the feed come in, a sequence of arrays comes out (anything that is None is left out of the answer). With
``double`` parameters and float32 feeds are float64: the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Call = Callable[..., Sequence[Any]]
Compile = Callable[[], Call]

# The name on the command line, and the module in this folder, which has the name of none that it imports.
PEERS = {"staticgrad": "compiled", "numpy": "plain", "torch": "eager", "jax": "jitted"}
