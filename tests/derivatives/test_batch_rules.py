"""Batch rules, from the op table: every op and its derivatives over examples, whichever operands depend on one.

What ``vmap`` makes is compared with a Python loop over the examples: of values, of gradients and tangents by each
operand, taken within the function and around it. By the interpreter, since how an op is compiled is tested elsewhere.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from source_tree import ROOT, modules
from support.sampling import operand_dtypes, operands

import staticgrad as sg
from staticgrad.base.types import is_floating
from staticgrad.graph.optable import FUNCTIONS, OPS, Case, Op
from staticgrad.ops.batch_rules import broadcasting

EXAMPLES = 2

Function = Callable[..., list[sg.Tensor]]


def goes_over_examples(op: Op) -> bool:
    return bool(op.cases and op.cases[0].shapes) and not op.effect and not op.draws


def has_a_rule(op: Op) -> bool:
    """True if an op of several operands has a rule that it shares with no other family, or only some of its cases."""
    return callable(op.batch) and op.batch.__module__ != broadcasting.__module__ and len(op.cases[0].shapes) > 1


TABLE = [op for op in OPS.values() if goes_over_examples(op)]


def moving(case: Case, dtype: np.dtype) -> list[int]:
    if case.differentiable is not None:
        return list(case.differentiable)
    return [place for place, d in enumerate(operand_dtypes(case, dtype)) if is_floating(d)]


def values(op: Op, case: Case, xs: Sequence[sg.Tensor]) -> list[sg.Tensor]:
    return list(sg.get_default_graph().add(op, list(xs), case.attrs).outputs)


def floats(ys: Sequence[sg.Tensor]) -> list[sg.Tensor]:
    return [y for y in ys if is_floating(y.dtype)]


def pulled_back(ys: Sequence[sg.Tensor], xs: Sequence[sg.Tensor]) -> list[sg.Tensor]:
    return sg.gradients(ys, xs, [sg.stop_gradient(sg.cos(y)) for y in ys], unconnected_gradients="zero")


def pushed_forward(ys: Sequence[sg.Tensor], xs: Sequence[sg.Tensor]) -> list[sg.Tensor]:
    return sg.jvp(ys, xs, [sg.stop_gradient(sg.cos(x)) for x in xs])


def functions(op: Op, case: Case, dtype: np.dtype, each: bool) -> Iterator[tuple[str, Function]]:
    """Functions of one example: the op, and its derivatives by its operands, by all or also by ``each`` alone."""
    yield "value", lambda *xs: values(op, case, xs)
    by = moving(case, dtype) if op.differentiable else []
    groups = [by, *([place] for place in by if each and len(by) > 1)] if by else []
    for group, (what, derive) in itertools.product(groups, (("vjp", pulled_back), ("jvp", pushed_forward))):

        def derived(*xs: sg.Tensor, group: Sequence[int] = group, derive: Any = derive) -> list[sg.Tensor]:
            made: list[sg.Tensor] = derive(floats(values(op, case, xs)), [xs[place] for place in group])
            return made

        yield f"{what} by {group}", derived


def subsets(count: int) -> list[tuple[int, ...]]:
    sizes = range(1, count + 1) if count <= 4 else (1, 2, count)
    return [chosen for size in sizes for chosen in itertools.combinations(range(count), size)]


Pair = tuple[str, sg.Tensor, list[sg.Tensor]]  # a name, a result over all examples, the results of each


def pairs(op: Op, case: Case, dtype: np.dtype, chosen: tuple[int, ...], each: bool) -> Iterator[Pair]:
    drawn = [operands(op, case, dtype, "vmap", number) for number in range(EXAMPLES)]
    count = len(case.shapes)
    xs = [sg.constant(np.stack([e[i] for e in drawn]) if i in chosen else drawn[0][i]) for i in range(count)]
    rows = [[xs[i][number] if i in chosen else xs[i] for i in range(count)] for number in range(EXAMPLES)]
    axes = tuple(0 if i in chosen else None for i in range(count))
    for name, fn in functions(op, case, dtype, each):
        singles = [fn(*row) for row in rows]
        made = sg.vmap(fn, in_axes=axes)(*xs)
        yield from ((f"{name} over {chosen}", y, [single[i] for single in singles]) for i, y in enumerate(made))
        by = [xs[i] for i in moving(case, dtype)]
        if name == "value" and op.differentiable and by and floats(made):
            stacked = [sg.stack(parts) for parts in zip(*map(floats, singles), strict=True)]
            for what, derive in (("vjp", pulled_back), ("jvp", pushed_forward)):
                around, expected = derive(floats(made), by), derive(stacked, by)
                for y, want in zip(around, expected, strict=True):
                    yield f"{what} around the map over {chosen}", sg.expand_dims(y, 0), [want]


def check(op: Op, cases: Sequence[Case], whole: bool) -> None:
    dtype = np.dtype(np.float64)
    if op.dtypes and dtype not in op.dtypes:
        dtype = op.dtypes[0]
    for case in cases:
        with sg.Graph() as graph:
            chosen = subsets(len(case.shapes)) if whole else [(place,) for place in range(len(case.shapes))]
            found = [pair for some in chosen for pair in pairs(op, case, dtype, some, whole)]
        results = sg.Session(graph).run([(together, singles) for _, together, singles in found])
        for (name, _, _), (together, singles) in zip(found, results, strict=True):
            np.testing.assert_allclose(
                together, np.stack(singles), rtol=1e-9, atol=1e-9, err_msg=f"{op.name} {case}: {name}"
            )


@pytest.mark.parametrize("op", [op for op in TABLE if has_a_rule(op)], ids=lambda op: op.name)
def test_an_op_and_its_derivatives_over_examples_of_one_operand(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    check(op, op.cases[:1], whole=False)


@pytest.mark.slow
@pytest.mark.parametrize("op", TABLE, ids=lambda op: op.name)
def test_all_cases_of_an_op_and_its_derivatives_by_each_operand(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    check(op, op.cases, whole=True)


@pytest.mark.parametrize("read", ["take", "take_along_axis", "scatter"])
def test_a_shared_table_is_derived_where_its_indices_are_of_examples(read: str) -> None:
    """The derivative within the function failed: what reads handed to writes, no write takes."""
    with sg.Graph() as graph:
        table, places = sg.constant(np.arange(12.0).reshape(4, 3)), np.array([[2, 0], [3, 3], [1, 2]])

        def fn(k: sg.Tensor) -> sg.Tensor:
            y = {
                "take": lambda: sg.take(table, k, axis=0),
                "take_along_axis": lambda: sg.take_along_axis(table, k[:, None], axis=1),
                "scatter": lambda: sg.scatter(table, k, table[:2] * 2, mode="add"),
            }
            return sg.sum(y[read]() ** 2)

        if read == "take_along_axis":
            table = table[:2]
            places = places % 3
        rows = [sg.gradients(fn(sg.constant(k)), table)[0] for k in places]
        around = sg.gradients(sg.vmap(fn)(sg.constant(places)), table)[0]
        within = sg.vmap(lambda k: sg.gradients(fn(k), table)[0])(sg.constant(places))
    got, total, expected = sg.Session(graph).run([within, around, rows])
    np.testing.assert_allclose(got, expected)
    np.testing.assert_allclose(total, np.sum(expected, 0))


# -- calls of functions of the table ------------------------------------------------------------------------------


WRITTEN = (
    "staticgrad.ops.",
    "staticgrad.compiler.autodiff.",
    "staticgrad.compiler.autodiff.batching",
)  # by the namespace


def test_rules_call_functions_of_the_table_by_their_signatures() -> None:
    """Type checkers see no further than the namespace, and what a rule calls may run in rare cases only."""
    own = {name for name in dir(type(FUNCTIONS)) if not name.startswith("__")}
    signatures: dict[str, inspect.Signature] = {}
    calls = 0
    for path in (path for name, path in modules().items() if name.startswith(WRITTEN)):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match call:
                case ast.Call(ast.Attribute(ast.Name("o" | "FUNCTIONS"), name)) if name not in own | {"__getattr__"}:
                    function = getattr(FUNCTIONS, name)
                case _:
                    continue
            given = [x for x in call.args if not isinstance(x, ast.Starred)]
            named = {keyword.arg: None for keyword in call.keywords if keyword.arg is not None}
            is_whole = len(given) + len(named) == len(call.args) + len(call.keywords)
            signature = signatures.setdefault(name, inspect.signature(function))
            calls += 1
            try:
                (signature.bind if is_whole else signature.bind_partial)(*given, **named)
            except TypeError as error:
                pytest.fail(f"{path.relative_to(ROOT)}:{call.lineno}: {name}{signature}: {error}")
    assert calls > 1000
