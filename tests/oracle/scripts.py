"""Programs, scripts of actions on them, and answers: what PyTorch and staticgrad both understand.

    Script ::= Recipe, (Action, answer)*             one line of the data file
    Recipe ::= Leaf*, Step*                          tensors are numbered: the leaves, then the results of the steps
    Leaf   ::= how it gets its value, shape, whether it requires a gradient
    Step   ::= op(numbers of operands; attributes)   [under no_grad]
    Action ::= Hook | Remove | Retain | Forward | Backward | Value | Gradients | Zero | Assign

A program is declared once. Each ``Forward`` makes a tape: in PyTorch the code runs again and makes new tensors, on
which the hooks and retained gradients that are in force then are registered. The gradient of a number is the sum over
all tapes. Answers: a ``Backward`` gives ``"ok"`` and what its hooks noted, or the reason why it was refused; ``Value``
and ``Gradients`` give arrays (None: no gradient); the others give nothing.

A backward that is refused changes nothing. PyTorch leaves behind what it did before it found out, so its answers after
a refusal are those to the script without the refused call.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
T = TypeVar("T")
DATA = Path(__file__).parent.parent / "data" / "oracle" / "scripts.jsonl"
DIGITS = 12


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FREED, NO_GRAD, NOT_SCALAR, WRONG_SHAPE, CHANGED = "freed", "no grad", "not scalar", "wrong shape", "changed"


@dataclass(frozen=True, slots=True)
class Leaf:
    """``kind``: ``fed`` anew to each forward, ``variable`` (state that all tapes share), or ``constant``."""

    kind: str
    shape: tuple[int, ...]
    requires_grad: bool = False
    value: Any = None  # what a variable begins with, or a constant is


@dataclass(frozen=True, slots=True)
class Step:
    op: str
    operands: tuple[int, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    no_grad: bool = False


@dataclass(frozen=True, slots=True)
class Recipe:
    leaves: tuple[Leaf, ...]
    steps: tuple[Step, ...]

    def tensors(
        self,
        leaves: Sequence[T],
        functions: Mapping[str, Callable[..., T]],
        no_grad: Callable[[], AbstractContextManager[Any]],
    ) -> list[T]:
        """Declare (or run) the steps with the functions of one library."""
        pool = list(leaves)
        for step in self.steps:
            with no_grad() if step.no_grad else nullcontext():
                pool.append(functions[step.op](*(pool[i] for i in step.operands), **step.attrs))
        return pool


# -- actions -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hook:
    """From the next forward on. ``kind``: ``scale``, ``shift`` or ``clamp`` by ``number``, ``times`` the tensor number
    ``other``, ``look`` (nothing). ``noted``: its handle and the gradient that it gets belong to the answers."""

    handle: int
    tensor: int
    kind: str
    number: float = 0.0
    other: int | None = None
    noted: bool = False


@dataclass(frozen=True, slots=True)
class Remove:
    handle: int


@dataclass(frozen=True, slots=True)
class Retain:
    tensor: int


@dataclass(frozen=True, slots=True)
class Forward:
    tape: int
    outputs: tuple[int, ...]
    feeds: tuple[Any, ...]  # of the fed leaves, in order


@dataclass(frozen=True, slots=True)
class Backward:
    tape: int
    outputs: tuple[int, ...]
    grads: tuple[Any, ...] | None
    retain_graph: bool


@dataclass(frozen=True, slots=True)
class Value:
    tape: int
    output: int


@dataclass(frozen=True, slots=True)
class Gradients:
    tensors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Zero:
    pass


@dataclass(frozen=True, slots=True)
class Assign:
    variable: int
    value: Any


Action = Hook | Remove | Retain | Forward | Backward | Value | Gradients | Zero | Assign
ACTIONS: dict[str, type[Action]] = {
    kind.__name__: kind for kind in (Hook, Remove, Retain, Forward, Backward, Value, Gradients, Zero, Assign)
}
Notes = list[tuple[int, Array]]


class Refused(Exception):
    """A backward that the library refused, with the reason."""


class Player(Protocol, Generic[T]):
    """A library that plays scripts: one method for each action, on a program that was declared when it was made."""

    def hook(self, action: Hook) -> None: ...
    def remove(self, action: Remove) -> None: ...
    def retain(self, action: Retain) -> None: ...
    def forward(self, action: Forward) -> None: ...
    def backward(self, action: Backward) -> Notes: ...
    def value(self, action: Value) -> Array: ...
    def gradients(self, action: Gradients) -> list[Array | None]: ...
    def zero(self, action: Zero) -> None: ...
    def assign(self, action: Assign) -> None: ...


def perform(player: Player[Any], action: Action) -> Any:
    """The answer to one action; ``["ok", …]`` or ``["refused", reason]`` to a backward."""
    method = getattr(player, type(action).__name__.lower())
    if not isinstance(action, Backward):
        return method(action)
    try:
        return ["ok", *method(action)]
    except Refused as refused:
        return ["refused", str(refused)]


# -- the data file -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    recipe: Recipe
    actions: tuple[Action, ...]
    answers: tuple[Any, ...] = ()


def _plain(value: Any) -> Any:
    """JSON of answers and fields: floats with as many digits as are compared, whole ones as integers."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, float):
        short = float(f"{value:.{DIGITS}g}")
        return int(short) if short.is_integer() and abs(short) < 1e9 else short
    return value


def _fields(item: Any) -> list[Any]:
    """The values of a dataclass's fields, without those at the end that have their default."""
    values = [getattr(item, f.name) for f in dataclasses.fields(item)]
    while values:
        last = dataclasses.fields(item)[len(values) - 1]
        default = last.default_factory() if callable(last.default_factory) else last.default
        if type(values[-1]) is not type(default) or values[-1] != default:
            break
        values.pop()
    return values


def _tuples(kind: type[T], values: Sequence[Any]) -> T:
    """A dataclass from its fields' JSON: lists at the top are tuples."""
    return kind(*(tuple(v) if isinstance(v, list) else v for v in values))


def dump(script: Script) -> str:
    """One line."""
    data = {
        "name": script.name,
        "leaves": [_fields(leaf) for leaf in script.recipe.leaves],
        "steps": [_fields(step) for step in script.recipe.steps],
        "actions": [[type(action).__name__, *_fields(action)] for action in script.actions],
        "answers": script.answers,
    }
    return json.dumps(_plain(data), separators=(",", ":"), allow_nan=False)


def parse(line: str) -> Script:
    data = json.loads(line)
    return Script(
        data["name"],
        Recipe(
            tuple(_tuples(Leaf, leaf) for leaf in data["leaves"]), tuple(_tuples(Step, step) for step in data["steps"])
        ),
        tuple(_tuples(ACTIONS[name], values) for name, *values in data["actions"]),
        tuple(data["answers"]),
    )


def write(scripts: Iterable[Script], path: Path = DATA) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(dump(script) + "\n" for script in scripts), encoding="utf-8")


def read(path: Path = DATA) -> Iterator[Script]:
    with path.open(encoding="utf-8") as lines:
        yield from map(parse, lines)
