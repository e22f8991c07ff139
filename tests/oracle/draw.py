"""Random programs and scripts for the oracle, drawn from a seed.

Values are computed by PyTorch while a program is drawn: they say which ops make sense next. Left out are ops whose
meaning differs on purpose or by accident, and operands for which PyTorch saves more than the derivative reads:

- ``avg_pool2d`` saves its input, of which the derivative reads the shape alone;
- convolutions and normalisations save their input also where the bias alone requires a gradient;
- ``hardsigmoid`` derives with a sixth in single precision, ``digamma`` to nine digits;
- everything random, whose draws differ.

Where variables are written between a forward and its backward, both sides refuse a backward that would read the old
value. Which values those are depends on the rule of each op: of a quotient the numerator or the result, of ``max`` the
operand or a mask, nothing behind ``floor``. There, programs have plain ops, variables meet only those that leave no
choice, and there are no views of them: in PyTorch a write to its base makes a view lose its hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from .answers import FUNCTIONS, tensor
from .scripts import (
    Action,
    Assign,
    Backward,
    Forward,
    Gradients,
    Hook,
    Leaf,
    Recipe,
    Remove,
    Retain,
    Step,
    Value,
    Zero,
    words,
)

TWICE = 0.12  # of what is drawn is declared twice
LARGEST_VALUE = 40.0
LARGEST_SIZE = 48
IMAGE, SEQUENCE = (1, 2, 4, 4), (1, 2, 4)
SHAPES = ((2, 3), (3,), (2, 1), (), (3, 3), (1, 3), (2, 2, 3), (4,), (3, 2))
NUMBERS = (2, 3, 0.5, -1.5, 1, 0.25)
SMOOTH = words(
    "negative square abs sin cos tanh sinh cosh atan asinh erf erfc sigmoid relu elu selu gelu silu softplus mish"
    " softsign leaky_relu hardtanh hardswish relu6 log_sigmoid expm1 exp exp2 identity"
)
POSITIVE = words("log sqrt rsqrt reciprocal log1p log2 log10 lgamma")
UNIT = words("asin acos atanh")
STEPS = words("floor ceil round trunc sign")


class Rejected(Exception):
    """What was drawn does not make sense (its values are too large, its shapes don't fit): draw again."""


class Program:
    """Grows a recipe. Tensors are numbers; ``values`` has a sample of each."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.leaves: list[Leaf] = []
        self.steps: list[Step] = []
        self.values: list[torch.Tensor] = []

    # -- choosing -----------------------------------------------------------------------------------------------------

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def one(self, items: Sequence[Any]) -> Any:
        if not items:
            raise Rejected
        return items[int(self.rng.integers(len(items)))]

    def array(self, shape: Sequence[int], low: float = -2.0, high: float = 2.0) -> Any:
        return np.round(self.rng.uniform(low, high, shape), 3).tolist()

    def floating(self, test: Callable[[torch.Tensor], bool] = lambda x: True) -> list[int]:
        return [i for i, x in enumerate(self.values) if x.dtype == torch.float64 and test(x)]

    def pick(self, test: Callable[[torch.Tensor], bool] = lambda x: True) -> int:
        """A floating tensor, the later the likelier, mostly one that requires a gradient."""
        found = self.floating(test)
        good = [i for i in found if self.values[i].requires_grad]
        found = good if good and self.chance(0.85) else found
        if found and self.chance(0.5):
            found = found[-4:]
        return int(self.one(found))

    # -- growing ------------------------------------------------------------------------------------------------------

    def leaf(self, kind: str, shape: Sequence[int], requires_grad: bool) -> int:
        assert not self.steps, "leaves come before steps"
        value = self.array(shape)
        self.leaves.append(Leaf(kind, tuple(shape), requires_grad, None if kind == "fed" else value))
        self.values.append(tensor(value, shape).requires_grad_(requires_grad))
        return len(self.values) - 1

    def step(self, op: str, *operands: int, no_grad: bool = False, **attrs: Any) -> int:
        """Declare an op, if its sample is finite and moderate."""
        with torch.set_grad_enabled(not no_grad):
            try:
                y = FUNCTIONS[op](*(self.values[i] for i in operands), **attrs)
            except (RuntimeError, IndexError, ValueError) as error:
                raise Rejected from error
        if y.numel() > LARGEST_SIZE or y.numel() == 0 or y.dtype not in (torch.float64, torch.bool):
            raise Rejected
        if y.dtype == torch.float64 and not bool((y.abs() <= LARGEST_VALUE).all()):
            raise Rejected
        self.steps.append(Step(op, operands, attrs, no_grad))
        self.values.append(y)
        return len(self.values) - 1

    def grow(self, count: int, composed: bool = True) -> None:
        """About ``count`` random ops."""
        makers = [self.unary, self.unary, self.number, self.binary, self.binary, self.reduction, self.view, self.view,
                  self.joined, self.product, self.chosen, self.cut]  # fmt: skip
        if composed:
            makers += [self.network, self.network, self.loss]
            makers += [self.image] * 4 if self.leaves[0].shape == IMAGE else []
            makers += [self.sequence] * 3 if self.leaves[0].shape == SEQUENCE else []
        goal, tries = len(self.steps) + count, 0
        while len(self.steps) < goal:
            tries += 1
            if tries > 40 * count:
                raise Rejected
            before = len(self.steps)
            try:
                y = self.one(makers)()
                if self.chance(TWICE):
                    self.step(self.one(["multiply", "add", "maximum"]), y, self.again(y, before))
            except Rejected:
                del self.values[len(self.values) - (len(self.steps) - before) :]
                del self.steps[before:]

    def again(self, y: int, before: int) -> int:
        """The steps from number ``before`` on, which ended with ``y``, declared once more of the same operands."""
        first, more = len(self.leaves) + before, len(self.steps) - before
        for step in self.steps[before:]:
            operands = (i + more if i >= first else i for i in step.operands)
            self.step(step.op, *operands, no_grad=step.no_grad, **step.attrs)
        return y + more

    def positive(self, i: int) -> int:
        return self.step("add_number", self.step(self.one(["square", "softplus", "abs"]), i), number=0.5)

    def unary(self) -> int:
        x = self.pick()
        kind = self.rng.random()
        if kind < 0.66:
            return self.step(self.one(SMOOTH), x, no_grad=self.chance(0.06))
        if kind < 0.8:
            return self.step(self.one(POSITIVE), self.positive(x))
        if kind < 0.9:
            return self.step(self.one(UNIT), self.step("multiply_number", self.step("tanh", x), number=0.9))
        if kind < 0.95:
            return self.step("acosh", self.step("add_number", self.positive(x), number=1))
        return self.step(self.one(STEPS), x)

    def number(self) -> int:
        x, number = self.pick(), self.one(NUMBERS)
        op = self.one(["add", "subtract", "multiply", "divide", "pow"])
        if self.chance(0.7):
            if op == "pow":
                return self.step("pow_number", *([x] if number in (2, 3, 1) else [self.positive(x)]), number=number)
            return self.step(f"{op}_number", x, number=number)
        if op == "pow":
            return self.step("number_pow", self.step("tanh", x), number=abs(number) + 0.5)
        if op in ("divide", "add"):
            return self.step("number_divide", self.positive(x), number=number)
        return self.step(f"number_{op}", x, number=number)

    def partner(self, x: int, same: bool = False) -> int:
        shape = self.values[x].shape

        def fits(y: torch.Tensor) -> bool:
            if same:
                return y.shape == shape
            try:
                return bool(np.prod(np.broadcast_shapes(y.shape, shape)) <= LARGEST_SIZE)
            except ValueError:
                return False

        return self.pick(fits)

    def binary(self) -> int:
        x = self.pick()
        y = self.partner(x)
        op = self.one(["add", "subtract", "multiply", "multiply", "divide", "maximum", "minimum", "hypot", "pow",
                       "logaddexp", "atan2"])  # fmt: skip
        if op == "divide":
            return self.step(op, x, self.positive(y))
        if op == "pow":
            return self.step(op, self.positive(x), self.step("tanh", y))
        if op == "atan2":
            return self.step(op, x, self.positive(y))
        return self.step(op, x, y, no_grad=self.chance(0.04))

    def reduction(self) -> int:
        x = self.pick(lambda t: t.ndim > 0)
        value = self.values[x]
        op = self.one(["sum", "mean", "max", "min", "prod", "var", "std", "logsumexp"])
        if op == "prod":
            return self.step(op, x, axis=self.one([None, *range(value.ndim)]))
        axes = [a for a in range(value.ndim) if op not in ("var", "std") or value.shape[a] > 1]
        chosen: Any = self.one([None, axes, self.one(axes)])
        if op in ("var", "std"):
            return self.step(op, x, axis=chosen or axes, correction=int(self.chance(0.3)))
        return self.step(op, x, axis=chosen, keepdims=self.chance(0.4))

    def view(self) -> int:
        x = self.pick(lambda t: t.ndim > 0)
        shape = list(self.values[x].shape)
        rank, axis = len(shape), int(self.rng.integers(len(shape)))
        size = shape[axis]

        def sliced() -> int:
            start = int(self.rng.integers(size))
            key: list[Any] = [[None, None, None] for _ in shape]
            key[axis] = self.one([[start, None, None], [None, start + 1, None], [None, None, 2], start, -1])
            if self.chance(0.15):
                key.insert(0, None)
            return self.step("getitem", x, key=key)

        def reshaped() -> int:
            total = int(np.prod(shape))
            first = self.one([f for f in range(1, total + 1) if total % f == 0])
            return self.step("reshape", x, shape=self.one([[first, total // first], [total], [1, *shape], shape]))

        moves: list[Callable[[], int]] = [
            sliced,
            sliced,
            reshaped,
            lambda: self.step("permute_dims", x, axes=[int(a) for a in self.rng.permutation(rank)]),
            lambda: self.step("matrix_transpose", x),
            lambda: self.step("index", x, places=[int(p) for p in self.rng.integers(shape[0], size=3)]),
            lambda: self.step("take", x, places=[int(p) for p in self.rng.integers(size, size=2)], axis=axis),
            lambda: self.step("flip", x, axis=axis),
            lambda: self.step("roll", x, shift=1, axis=axis),
            lambda: self.step("squeeze", x, axis=shape.index(1) if 1 in shape else 99),
            lambda: self.step("expand_dims", x, axis=axis),
            lambda: self.step("broadcast_to", x, shape=[2, *shape]),
            lambda: self.step("pad", x, pad=[1, 0], value=self.one([0.0, 0.5])),
            lambda: self.step("tile", x, repetitions=[2] + [1] * (rank - 1)),
            lambda: self.step("repeat", x, repeats=2, axis=axis),
            lambda: self.step("unstack", x, axis=axis, piece=int(self.rng.integers(size))),
            lambda: self.step("split", x, sections=size, axis=axis, piece=int(self.rng.integers(size))),
        ]
        return int(self.one(moves)())

    def joined(self) -> int:
        x = self.pick(lambda t: t.ndim > 0)
        y = self.partner(x, same=True)
        op = self.one(["concat", "stack"])
        return self.step(
            op, *[x, y, x][: int(self.rng.integers(1, 4))], axis=int(self.rng.integers(self.values[x].ndim))
        )

    def product(self) -> int:
        kind = self.one(["matmul", "matmul", "linear", "outer", "vecdot", "einsum", "tensordot"])
        if kind == "outer":
            return self.step(kind, self.pick(lambda t: t.ndim == 1), self.pick(lambda t: t.ndim == 1))
        if kind == "vecdot":
            x = self.pick(lambda t: t.ndim > 0)
            return self.step(kind, x, self.partner(x, same=True))
        x = self.pick(lambda t: t.ndim >= 2)
        inner = self.values[x].shape[-1]
        if kind == "linear":
            w = self.pick(lambda t: t.ndim == 2 and t.shape[1] == inner)
            rows = self.values[w].shape[0]
            bias = self.floating(lambda t: t.shape == (rows,))
            return self.step(kind, x, w, *([self.one(bias)] if bias and self.chance(0.7) else []))
        y = self.pick(lambda t: t.ndim in (1, 2) and t.shape[0] == inner)
        if kind == "einsum":
            return self.step(kind, x, y, subscripts=self.one(["ij,jk->ik", "ij,jk->ki", "ij,jk->i", "ij,j->i"]))
        if kind == "tensordot":
            return self.step(kind, x, y, axes=1)
        return self.step("matmul", x, y)

    def network(self) -> int:
        kind = self.one(["softmax", "log_softmax", "layer_norm", "rms_norm", "batch_norm", "normalize", "attention",
                         "embedding"])  # fmt: skip
        if kind == "attention":
            x = self.pick(lambda t: t.ndim in (3, 4))
            return self.step("scaled_dot_product_attention", x, self.partner(x, same=True), self.partner(x, same=True))
        if kind == "embedding":
            x = self.pick(lambda t: t.ndim == 2)
            return self.step(kind, x, places=[int(p) for p in self.rng.integers(self.values[x].shape[0], size=3)])
        # Of a normalisation's operands the first requires a gradient: see above.
        x = self.pick(lambda t: t.ndim == 2 and t.shape[1] >= 2 and t.requires_grad)
        if kind in ("softmax", "log_softmax", "normalize"):
            return self.step(kind, x, dim=self.one([0, 1, -1]))
        if kind == "batch_norm" and self.values[x].shape[0] < 3:
            raise Rejected
        parameters = self.floating(lambda t: t.shape == (self.values[x].shape[1],))
        count = {"layer_norm": 2, "batch_norm": 2, "rms_norm": 1}[kind]
        with_them = len(parameters) > 0 and self.chance(0.7)
        return self.step(kind, x, *([self.one(parameters) for _ in range(count)] if with_them else []))

    def image(self) -> int:
        x = self.pick(lambda t: t.ndim == 4 and t.requires_grad)
        channels = self.values[x].shape[1]
        kind = self.one(["conv2d", "max_pool2d", "group_norm"])
        if kind == "conv2d":
            w = self.pick(lambda t: t.ndim == 4 and t.shape[1] == channels and t.shape[-1] in (2, 3))
            return self.step(kind, x, w, padding=int(self.rng.integers(2)), stride=int(self.rng.integers(1, 3)))
        if kind == "group_norm":
            return self.step(kind, x, num_groups=1)
        return self.step(kind, x, kernel_size=2, stride=int(self.rng.integers(1, 3)))

    def sequence(self) -> int:
        x = self.pick(lambda t: t.ndim == 3 and t.requires_grad)
        w = self.pick(lambda t: t.ndim == 3 and t.shape[1] == self.values[x].shape[1] and t.shape[2] <= 3)
        return self.step("conv1d", x, w, padding=1)

    def loss(self) -> int:
        kind = self.one(["mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss", "kl_div", "cross_entropy", "nll_loss",
                         "binary_cross_entropy_with_logits"])  # fmt: skip
        x = self.pick(lambda t: t.ndim == 2)
        rows, columns = self.values[x].shape
        labels = [int(p) for p in self.rng.integers(columns, size=rows)]
        if kind == "cross_entropy":
            return self.step(kind, x, labels=labels)
        if kind == "nll_loss":
            return self.step(kind, self.step("log_softmax", x, dim=1), labels=labels)
        y = self.partner(x, same=True)
        reduction = self.one(["mean", "sum", "none"])
        if kind == "kl_div":
            logs, ps = self.step("log_softmax", x, dim=1), self.step("softmax", y, dim=1)
            return self.step(kind, logs, ps, reduction=self.one(["batchmean", "sum"]))
        if kind == "binary_cross_entropy_with_logits":
            y = self.step("sigmoid", y)
        return self.step(kind, x, y, reduction=reduction)

    def chosen(self) -> int:
        x = self.pick()
        kind = self.rng.random()
        if kind < 0.3:
            low, high = self.one([(-0.5, 0.7), (None, 0.4), (0.1, None)])
            return self.step("clip", x, low=low, high=high)
        condition = (
            self.step("greater_number", x, number=0.1) if self.chance(0.5) else self.step("less", x, self.partner(x))
        )
        y = self.partner(x)
        return (
            self.step("where_number", condition, y, number=0.5)
            if self.chance(0.3)
            else self.step("where", condition, x, y)
        )

    def cut(self) -> int:
        if self.chance(0.3):
            raise Rejected  # rarer than others
        x = self.pick()
        y = self.step(self.one(["stop_gradient", "identity"]), x)
        return self.step("multiply", y, self.partner(y))

    def scalar(self, i: int) -> int:
        return self.step(self.one(["sum", "mean"]), i)

    @property
    def recipe(self) -> Recipe:
        return Recipe(tuple(self.leaves), tuple(self.steps))


# -- programs ----------------------------------------------------------------------------------------------------------


def leaves(program: Program) -> None:
    """Two to five leaves of shapes that go together; now and then an image with a filter, or a sequence."""
    rng = program.rng
    kind = rng.random()
    shapes = [SHAPES[int(i)] for i in rng.integers(len(SHAPES), size=int(rng.integers(2, 5)))]
    if kind < 0.12:
        shapes = [IMAGE, (2, 2, 3, 3), (2,)]
    elif kind < 0.2:
        shapes = [SEQUENCE, (2, 2, 3), (2,)]
    elif kind < 0.7:
        shapes[0] = (2, 3)
        shapes.append(program.one([(3, 3), (3, 2), (3,)]))
    for number, shape in enumerate(shapes):
        made = program.one(["fed", "fed", "variable", "constant"] if number else ["fed", "variable"])
        program.leaf(made, shape, made != "constant" and (number == 0 or program.chance(0.75)))


def plain(program: Program, composed: bool = True) -> list[int]:
    """A random program and its outputs: two to four of its last tensors, most of them summed."""
    leaves(program)
    program.grow(int(program.rng.integers(4, 13)), composed)
    made = [i for i in program.floating() if i >= len(program.leaves)]
    if not made:
        raise Rejected
    count = min(len(made), int(program.rng.integers(2, 5)))
    picked = sorted(
        {made[-1], *(int(i) for i in program.rng.choice(made[-8:], size=min(count, len(made[-8:])), replace=False))}
    )
    outputs = [i if program.values[i].numel() == 1 or program.chance(0.25) else program.scalar(i) for i in picked]
    if program.chance(0.1):
        outputs.append(program.one([i for i in range(len(program.leaves)) if program.leaves[i].requires_grad]))
    return list(dict.fromkeys(outputs))


OF_VARIABLES = words(
    "add subtract multiply matmul linear outer vecdot einsum tensordot sin cos square sinh cosh exp tanh sigmoid erf"
    " negative add_number subtract_number number_subtract multiply_number sum mean concat stack identity index take"
)


def stateful(program: Program) -> list[int]:
    """A program for scripts that write variables: see above."""
    outputs = plain(program, composed=False)
    variables = {i for i, leaf in enumerate(program.leaves) if leaf.kind == "variable"}
    met = {step.op for step in program.steps if variables & {*step.operands}}
    if not met or not met <= {*OF_VARIABLES} or any(step.op in STEPS for step in program.steps):
        raise Rejected
    return outputs


def heads(program: Program) -> list[int]:
    """Two or three heads on a trunk."""
    leaves(program)
    program.grow(int(program.rng.integers(2, 6)))
    trunk = program.pick(lambda t: t.requires_grad and not t.is_leaf)
    outputs = []
    for _ in range(int(program.rng.integers(2, 4))):
        mark = len(program.values)
        x = program.step(program.one(["multiply", "add", "subtract"]), trunk, program.partner(trunk))
        x = program.step(program.one(["tanh", "sin", "exp", "relu", "square", "identity", "negative"]), x)
        program.grow(int(program.rng.integers(0, 3)))
        last = program.floating(lambda t: t.requires_grad)[-1]
        outputs.append(program.scalar(last if last >= mark else x))
    return outputs


# -- scripts -----------------------------------------------------------------------------------------------------------


class Direction:
    """Draws the actions of a script on a program."""

    def __init__(self, program: Program, outputs: Sequence[int]) -> None:
        self.program = program
        self.rng = program.rng
        self.outputs = list(outputs)
        self.fed = [i for i, leaf in enumerate(program.leaves) if leaf.kind == "fed"]
        self.leaves = [i for i, leaf in enumerate(program.leaves) if leaf.kind != "constant"]
        self.variables = [i for i, leaf in enumerate(program.leaves) if leaf.kind == "variable"]
        self.differentiable = [i for i in program.floating() if program.values[i].requires_grad]
        self.actions: list[Action] = []
        self.hooks: dict[int, int] = {}  # handle -> tensor
        self.retained: list[int] = []
        self.tapes: dict[int, tuple[int, ...]] = {}
        self.count = 0

    def hook(self, fixed: bool) -> None:
        """``fixed``: on any tensor; else only on those that each forward makes anew."""
        where = [i for i in self.differentiable if fixed or i not in self.variables]
        if not where:
            return
        near = [i for i in where if i in self.outputs or i in self.leaves]
        place = self.program.one(near if near and self.program.chance(0.35) else where)
        kind = self.program.one(["scale", "shift", "clamp", "times", "look", "scale"])
        other = None
        if kind == "times":
            shape = self.program.values[place].shape
            there = self.program.floating(lambda t: t.shape == shape)
            if self.variables:  # what a backward reads of a variable is its value then, in PyTorch also after a write
                there = [i for i in there if i not in self.variables]
            if not there:
                return
            other = self.program.one(there)
        number = self.program.one([2.0, -1.0, 0.5, 3.0] if kind == "scale" else [0.25, 1.0, 0.5])
        handle = self.count
        self.count += 1
        noted = kind == "look" or self.program.chance(0.25)
        self.hooks[handle] = place
        self.actions.append(Hook(handle, place, kind, number, other, noted))

    def remove(self) -> None:
        removable = [h for h, place in self.hooks.items() if place not in self.variables]
        if removable:
            handle = self.program.one(removable)
            del self.hooks[handle]
            self.actions.append(Remove(handle))

    def retain(self) -> None:
        where = [i for i in self.differentiable if i not in self.retained and i not in self.leaves]
        if where:
            place = self.program.one(where)
            self.retained.append(place)
            self.actions.append(Retain(place))

    def forward(self) -> int:
        tape = len(self.tapes)
        outputs = tuple(self.outputs)
        self.tapes[tape] = outputs
        feeds = tuple(self.program.array(self.program.leaves[i].shape) for i in self.fed)
        self.actions.append(Forward(tape, outputs, feeds))
        return tape

    def backward(self, tape: int, outputs: Sequence[int], retain: bool) -> None:
        grads: list[Any] = []
        for i in outputs:
            value = self.program.values[i]
            given = self.program.chance(0.95 if value.numel() > 1 else 0.12)
            shape = tuple(value.shape)
            if given and not grads and self.program.chance(0.03):  # of the first: else PyTorch fails to say so
                shape = (*shape, 2)
            grads.append(self.program.array(shape) if given else None)
        weights = None if all(g is None for g in grads) else tuple(grads)
        self.actions.append(Backward(tape, tuple(outputs), weights, retain))
        self.read()

    def read(self) -> None:
        others = [i for i in self.program.floating() if i not in self.leaves and i not in self.retained]
        extra = [self.program.one(others)] if others and self.program.chance(0.3) else []
        self.actions.append(Gradients((*self.leaves, *self.retained, *extra)))

    def value(self) -> None:
        tape = self.program.one(list(self.tapes))
        self.actions.append(Value(tape, self.program.one(self.tapes[tape])))

    def assign(self) -> None:
        if self.variables:
            place = self.program.one(self.variables)
            self.actions.append(Assign(place, self.program.array(self.program.leaves[place].shape)))

    def some(self) -> list[int]:
        """One output, or several: also one twice."""
        if self.program.chance(0.65):
            return [self.program.one(self.outputs)]
        chosen = [self.program.one(self.outputs) for _ in range(int(self.rng.integers(2, 4)))]
        return chosen if self.program.chance(0.3) else list(dict.fromkeys(chosen))

    def prepare(self) -> None:
        for _ in range(int(self.rng.integers(0, 4))):
            self.hook(fixed=True)
        for _ in range(int(self.rng.integers(0, 3))):
            self.retain()
        if self.program.chance(0.25):
            self.remove()


def spending(direction: Direction) -> None:
    """Backwards of several tapes in any order, retaining or not, with changing hooks between forwards."""
    program = direction.program
    direction.prepare()
    direction.forward()
    for _ in range(int(program.rng.integers(4, 9))):
        kind = program.rng.random()
        if kind < 0.12 and len(direction.tapes) < 3:
            if program.chance(0.4):
                program.one([lambda: direction.hook(fixed=False), direction.remove, direction.retain])()
            direction.forward()
        elif kind < 0.2:
            direction.value()
        elif kind < 0.28:
            direction.actions.append(Zero())
        else:
            tape = program.one(list(direction.tapes))
            direction.backward(tape, direction.some(), program.chance(0.5))


def turns(direction: Direction) -> None:
    """Heads on a trunk: retained, together, consumed, once more, on two tapes in turns."""
    program = direction.program
    direction.prepare()
    tapes = [direction.forward()]
    if program.chance(0.6):
        tapes.append(direction.forward())
    for retain in (True, True, program.chance(0.5), False):
        for tape in tapes:
            outputs = direction.outputs if program.chance(0.3) else [program.one(direction.outputs)]
            direction.backward(tape, outputs, retain)
        if program.chance(0.2):
            direction.actions.append(Zero())
    for tape in tapes:
        for y in direction.outputs:
            if program.chance(0.6):
                direction.backward(tape, [y], program.chance(0.5))
    direction.value()


def writing(direction: Direction) -> None:
    """Variables written between forwards and backwards. All backwards retain, so that only writes refuse."""
    program = direction.program
    direction.prepare()
    direction.forward()
    for _ in range(int(program.rng.integers(5, 9))):
        kind = program.rng.random()
        if kind < 0.2 and len(direction.tapes) < 3:
            direction.forward()
        elif kind < 0.5:
            direction.assign()
        elif kind < 0.55:
            direction.value()
        else:
            direction.backward(program.one(list(direction.tapes)), direction.some(), True)


KINDS = {"spending": (plain, spending), "turns": (heads, turns), "writing": (stateful, writing)}


def draw(kind: str, seed: int) -> tuple[Recipe, list[Action]]:
    """A program and a script.

    Raises:
        Rejected: nothing came of this seed.
    """
    rng = np.random.default_rng([sorted(KINDS).index(kind), seed])
    program = Program(rng)
    make, direct = KINDS[kind]
    outputs = make(program)
    direction = Direction(program, outputs)
    direct(direction)
    return program.recipe, direction.actions


def kind_of(number: int) -> str:
    """Half of the scripts spend, a third goes in turns, the rest writes."""
    return ("spending", "turns", "spending", "turns", "spending", "writing")[number % 6]
