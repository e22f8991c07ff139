"""What a composed op expands into computes what the op's reference says, and references give what the type rules say.

Both are evaluated by references alone: nothing is compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.sampling import Array, operand_dtypes, operands, relative_error

import staticgrad as sg
from staticgrad.base.types import TensorType
from staticgrad.compiler.passes.expand import is_composed
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.optable import FUNCTIONS, OPS, Case, Op

TOLERANCE = {"float32": 5e-6, "float64": 1e-13}
RANDOM = {"random_uniform"}  # its reference takes a key


def evaluate(x: Tensor, values: dict[Tensor, Array]) -> Array:
    """The value of a tensor by the references of primitives; composed ops are expanded on the way."""
    if x not in values:
        node = x.op
        with node.graph:
            outputs = node.op.expand(FUNCTIONS, node) if is_composed(node) else node.outputs
        if outputs is not node.outputs:
            values.update((y, evaluate(new, values)) for y, new in zip(node.outputs, outputs, strict=True))
        else:
            run(node, values)
    return values[x]


def run(node: Node, values: dict[Tensor, Array]) -> None:
    for check in node.control:
        run(check, values)
    result = node.op.reference(node.attrs, *(evaluate(x, values) for x in node.inputs))
    results = result if isinstance(result, tuple) else (result,)
    values.update(zip(node.outputs, map(np.asarray, results), strict=True))


def dtypes_of(op: Op) -> tuple[np.dtype, ...]:
    return op.dtypes or (sg.float32, sg.float64)


def declared(op: Op, case: Case, dtype: np.dtype) -> tuple[Node, dict[Tensor, Array]]:
    with Graph() as graph:
        xs = [sg.placeholder(s, d) for s, d in zip(case.shapes, operand_dtypes(case, dtype), strict=True)]
        return graph.add(op, xs, case.attrs), dict(zip(xs, operands(op, case, dtype), strict=True))


TESTED = [op for op in OPS.values() if op.cases and op.name not in RANDOM]
COMPOSED = [op for op in TESTED if op.role == "composed"]


@pytest.mark.parametrize("op", TESTED, ids=lambda op: op.name)
def test_references_give_the_inferred_types(op: Op) -> None:
    for dtype in dtypes_of(op):
        for case in op.cases:
            node, values = declared(op, case, dtype)
            result: Any = op.reference(case.attrs, *values.values())
            results = result if isinstance(result, tuple) else (result,)
            for y, value in zip(node.outputs, results, strict=True):
                array = np.asarray(value)
                assert TensorType(array.shape, array.dtype) == y.type, f"{op.name} {case}"


@pytest.mark.parametrize("op", COMPOSED, ids=lambda op: op.name)
def test_expansions_compute_what_the_references_say(op: Op) -> None:
    for dtype in dtypes_of(op):
        for case in op.cases:
            node, values = declared(op, case, dtype)
            expected: Any = op.reference(case.attrs, *values.values())
            expected = expected if isinstance(expected, tuple) else (expected,)
            with np.errstate(all="ignore"):
                actual = [evaluate(y, values) for y in node.outputs]
            for got, want in zip(actual, expected, strict=True):
                tolerance = TOLERANCE.get(got.dtype.name, 0.0) * op.tolerance
                assert relative_error(got, np.asarray(want)) <= tolerance, f"{op.name} {case}: {got} expected {want}"
