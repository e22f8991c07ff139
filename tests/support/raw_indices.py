"""Finds indices out of range that reach ``gather`` and ``scatter_add``, which do not check theirs.

The reference backend then computes what the compiler's passes make of a program, and these two look at their indices
before they use them. What finds such indices before, as a check or a limit, is as in a compiled program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from staticgrad.compiler.passes import PASSES
from staticgrad.graph.graph import Node
from staticgrad.ops import interpreter
from staticgrad.runtime.running import reference

Array = np.ndarray[Any, np.dtype[Any]]
RAW = {"gather": 1, "scatter_add": 2}  # the operands that are no indices
FAR = (-(2**63), -(2**31) - 1, -100, -1, 0, 1, 3, 100, 2**31, 2**32 + 1, 2**63 - 1)


def look_at_raw_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on a raw read or write out of range is an ``AssertionError``."""
    compute, evaluate = interpreter._reference, reference.evaluate

    def looked_at(node: Node, inputs: Sequence[Array], *extra: Array) -> Sequence[Any]:
        if node.op.name in RAW:
            for axis, index in zip(node.attrs.axes, inputs[RAW[node.op.name] :], strict=True):
                wrong = index[(index < 0) | (index >= inputs[0].shape[axis])]
                assert not wrong.size, (
                    f"{node.op.name} {node.name!r} at {wrong[:3]} of {inputs[0].shape}, {node.source}"
                )
        return compute(node, inputs, *extra)

    def after_passes(region: Any, *arguments: Any) -> Any:
        for step in PASSES:
            region = step.apply(region)
        return evaluate(region, *arguments)

    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    monkeypatch.setattr(interpreter, "_reference", looked_at)
    monkeypatch.setattr(reference, "evaluate", after_passes)
