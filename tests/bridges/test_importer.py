"""The core of all importers, with a made-up dialect: lines of text such as ``y: float32[3] = sin x``.

A number is a constant. Lines that are indented are the body of the line before: the last one of them gives its result.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base.errors import SourceLine
from staticgrad.bridges.arrays import as_tensor, functions, promoted
from staticgrad.bridges.importer import Converters, Dialect, RefusedError, SourceBody, SourceScope, SourceType

FILE = "program.txt"
COMPUTED = {"add": np.add, "sin": np.sin}  # what the source computes of numbers by itself


@dataclass(eq=False)
class Line:
    """A node: the line of an op."""

    number: int
    op: str
    inputs: list[str]
    outputs: list[str]
    types: dict[str, SourceType] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)  # of its body

    def __str__(self) -> str:
        return f"{' '.join(self.outputs)} = {self.op}"


def read(text: str) -> list[Line]:
    """The lines of a program, those of bodies in the line that they belong to."""
    found: list[Line] = []
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.fullmatch(r"( *)(\w+)(?:: (\w+)\[(.*)\])? = (\w+) ?(.*)", line):
            indent, result, dtype, sizes, op, operands = match.groups()
            shape = tuple(None if size == "?" else int(size) for size in sizes.split(",")) if sizes else ()
            types = {} if dtype is None else {result: SourceType(np.dtype(dtype), shape)}
            (found[-1].lines if indent else found).append(Line(number, op, operands.split(), [result], types))
    return found


class Lines(Dialect):
    system = "Lines"
    lexical = True

    def __init__(self, converters: Converters, casts: bool = False) -> None:
        self.converters, self.casts = converters, casts
        self.types: dict[str, SourceType] = {}

    def name(self, node: Line) -> str:
        return node.op

    def constant(self, variable: str) -> Any:
        try:
            return np.float32(variable)
        except ValueError:
            return super().constant(variable)

    def declared(self, variable: str) -> SourceType | None:
        return self.types.get(variable)

    def bodies(self, node: Line) -> Iterator[SourceBody]:
        if node.lines:
            yield body_of(node)

    def source(self, node: Line) -> SourceLine | None:
        return SourceLine(FILE, node.number, "")

    def compute(self, node: Line, given: Sequence[Any]) -> Sequence[Any] | None:
        return [COMPUTED[node.op](*given)] if node.op in COMPUTED else None


def body_of(node: Line) -> SourceBody:
    """A body takes the operands after the first, under their names."""
    return SourceBody(node.inputs[1:], node.lines, node.lines[-1].outputs)


def converters() -> Converters:
    table = Converters()

    def simple(name: str, function: Any) -> None:
        @table.enter(name)
        def convert(at: SourceScope, node: Line) -> Any:
            return function(*promoted(*at.tensors(node.inputs)))

    for name, function in functions(add="add", sin="sin", mul="multiply").items():
        simple(name, function)

    @table.enter("zeros")
    def zeros(at: SourceScope, node: Line) -> Any:
        return sg.zeros(at.known_sizes(node.inputs))

    @table.enter("repeat")
    def repeat(at: SourceScope, node: Line) -> Any:
        count = int(at.known(node.inputs[0], "the number of turns"))
        start = at.tensors(node.inputs[1:])
        return sg.scan(lambda x, _: ([as_tensor(y) for y in at.call(body_of(node), x)], ()), start, (), length=count)[0]

    return table


def declare(text: str, given: dict[str, Any], outputs: Iterable[str], dialect: Lines | None = None) -> list[Any]:
    """The values of the outputs of a program."""
    dialect = Lines(converters()) if dialect is None else dialect
    program = SourceBody(list(given), read(text), list(outputs))
    for line in itertools.chain(program.nodes, *(line.lines for line in program.nodes)):
        dialect.types |= line.types
    dialect.require(program)
    return SourceScope(dialect, given).walk(program)


def refused(text: str, given: dict[str, Any], dialect: Lines | None = None) -> RefusedError:
    with pytest.raises(sg.UnsupportedError) as caught:
        declare(text, given, (), dialect)
    assert isinstance(caught.value, RefusedError)
    return caught.value


X = np.array([0.5, -1.0, 2.0], np.float32)

LOOP = """
two = mul x 2
y: float32[3] = repeat 3 x
  part = sin x
  sum = add part two
"""


def test_a_body_reads_its_inputs_and_the_variables_around_it() -> None:
    x = sg.placeholder((3,))
    (y,) = declare(LOOP, {"x": x}, ["y"])
    expected = X
    for _ in range(3):
        expected = np.sin(expected) + X * 2
    np.testing.assert_allclose(sg.Session().run(y, {x: X}), expected, rtol=1e-6)
    (slope,) = sg.gradients(sg.sum(y), [x])
    assert np.isfinite(sg.Session().run(slope, {x: X})).all()


def test_the_body_of_a_dialect_without_lexical_scopes_reads_its_inputs_alone() -> None:
    dialect = Lines(converters())
    dialect.lexical = False
    with pytest.raises(sg.GraphError, match="Lines: two is neither an input nor a result of an earlier node"):
        declare(LOOP, {"x": sg.placeholder((3,))}, ["y"], dialect)


def test_all_that_is_not_supported_is_said_at_once_with_counts_and_lines() -> None:
    text = """a = sin x
b = erf a
c = repeat 2 a
  d = fft b
  g = erf d
e = erf c
f = sin e
"""
    with sg.Graph() as graph:
        x = sg.placeholder((3,), name="x")
        error = refused(text, {"x": x})
    assert str(error) == (
        "Lines: the program has ops that are not supported here\n"
        "  erf (3 times): this op is not converted\n"
        "    program.txt:2\n"
        "    program.txt:5\n"
        "    program.txt:6\n"
        "  fft (once): this op is not converted\n"
        "    program.txt:4"
    )
    assert [(op.name, op.count, [s.line for s in op.sources]) for op in error.ops] == [
        ("erf", 3, [2, 5, 6]),
        ("fft", 1, [4]),
    ]
    assert str(error.node) == "b = erf"
    assert [node.name for node in graph.nodes] == ["x"]  # nothing was declared


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("float32[3]", None), ("float32[?]", None), ("float32[4]", "float32[4]"), ("float64[3]", "float64[3]"),
        ("float32[3,1]", "float32[3, 1]"), ("int32[]", "int32[]"),
    ],
)  # fmt: skip
def test_a_result_of_another_type_than_the_source_declares_is_refused(declared: str, expected: str | None) -> None:
    given = {"x": sg.placeholder((3,))}
    text = f"y = sin x\nz: {declared} = mul y y\n"
    if expected is None:
        assert declare(text, given, ["z"])[0].shape == (3,)
        return
    assert str(refused(text, given)) == (
        f"mul (z = mul): result z: Lines declares {expected}, actual float32[3]\n  declared at program.txt:2"
    )


def test_a_dialect_may_have_results_cast_instead() -> None:
    (y,) = declare("y: float64[3] = sin x\n", {"x": sg.placeholder((3,))}, ["y"], Lines(converters(), casts=True))
    assert y.dtype == np.float64
    refused("y: float64[4] = sin x\n", {"x": sg.placeholder((3,))}, Lines(converters(), casts=True))


def test_what_is_known_is_computed_by_the_source_so_that_sizes_are_numbers() -> None:
    small, z, large = declare(
        "n = add 1 2\nz: float32[3, 2] = zeros n 2\ny = sin x\n", {"x": np.zeros(5000)}, ["n", "z", "y"]
    )
    assert isinstance(small, np.floating)
    assert z.shape == (3, 2)
    assert isinstance(large, sg.Tensor)  # it is left to the program


def test_a_value_that_only_a_run_knows_is_refused_where_one_is_needed() -> None:
    text = "y = repeat 2 n\n  z = zeros n\n  m = add n n\n"
    error = refused(text, {"n": sg.placeholder(())})
    reason = "the shape of the result depends on values that only a run knows"
    assert str(error) == f"repeat (y = repeat): zeros: {reason}\n  declared at program.txt:2"
    assert error.needs == "n"
    assert [(op.name, op.count) for op in error.ops] == [("repeat", 1)]


def test_other_errors_of_a_converter_name_the_node() -> None:
    with pytest.raises(sg.GraphError, match=r"broadcast|\(2,\)") as caught:
        declare("z = add x y\n", {"x": sg.placeholder((3,)), "y": sg.placeholder((2,))}, ["z"])
    assert caught.value.__notes__ == ["in the conversion of Lines's node z = add"]


def test_an_op_is_one_entry_in_the_table() -> None:
    table = converters()
    assert "cosh" in str(refused("y = cosh x\n", {"x": sg.placeholder((3,))}, Lines(table)))

    @table.enter("cosh")
    def cosh(at: SourceScope, node: Line) -> Any:
        return sg.cosh(at.tensor(node.inputs[0]))

    x = sg.placeholder((3,))
    (y,) = declare("y: float32[3] = cosh x\n", {"x": x}, ["y"], Lines(table))
    np.testing.assert_allclose(sg.Session().run(y, {x: X}), np.cosh(X), rtol=1e-6)
    with pytest.raises(ValueError, match="cosh is converted twice"):
        table.enter("cosh")(cosh)
