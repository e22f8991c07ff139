"""Arguments of optimizers: learning rates, variables, pairs of these with gradients; and how they are refused."""

from __future__ import annotations

from collections.abc import Iterable

from staticgrad.base.errors import GraphError
from staticgrad.base.reach import reach
from staticgrad.graph.graph import Tensor
from staticgrad.graph.hooks import FROZEN
from staticgrad.graph.naming import Holder, variables_of
from staticgrad.ops.sources import VARIABLE
from staticgrad.optim.schedules import Schedule

GradAndVar = tuple[Tensor | None, Tensor]
LearningRate = float | Tensor | Schedule
Variables = Tensor | Holder | Iterable[Tensor]  # a module stands for its parameters


def check(condition: bool, what: str, name: str, value: object, expected: str) -> None:
    """Refuse an argument.

    Raises:
        GraphError: the condition does not hold.
    """
    if not condition:
        raise GraphError(f"{what}: {name}={value!r}: expected {expected}")


def variable(x: object, what: str = "an optimizer updates variables") -> Tensor:
    """``x``, which is a variable.

    Raises:
        GraphError: it is none.
    """
    if isinstance(x, Tensor) and x.op.op is VARIABLE:
        return x
    raise GraphError(f"{what}: {x!r} is none", source=getattr(x, "source", None))


def listed(variables: Variables, what: str = "an optimizer updates variables") -> list[Tensor]:
    """The variables that an argument names.

    Raises:
        GraphError: something in it is no variable.
    """
    if isinstance(variables, Holder):
        return [x for x in variables_of(variables) if x.op.attrs.trainable]
    return [variable(x, what) for x in ([variables] if isinstance(variables, Tensor) else variables)]


def depends_on(loss: Tensor) -> list[Tensor]:
    """The variables that a tensor depends on and that require a gradient now, in order of declaration."""
    needed = reach([loss.op], lambda node: [x.op for x in node.inputs])
    found = [node.outputs[0] for node in loss.graph.nodes if node in needed and node.op is VARIABLE]
    for x in found:
        x.graph.unread.pop((x, FROZEN), None)
    return [x for x in found if x.requires_grad]


def trained(variables: Variables, name: str) -> list[Tensor]:
    """The given variables that require a gradient now; ``name`` is that of the optimizer.

    Raises:
        GraphError: something in it is no variable, or none requires a gradient.
    """
    if not isinstance(variables, Tensor | Holder | Iterable):
        raise GraphError(
            f"{name}: expected a list of variables, actual {variables!r}; a step is an op, which takes no"
            " closure: train = opt.minimize(loss), and each sess.run(train, feeds) makes one"
        )
    found = listed(variables)
    trained = [v for v in found if v.requires_grad]
    if found and not trained:
        raise GraphError(
            f"{name}: none of the variables requires a gradient: requires_grad_() thaws {found[0].name!r}",
            source=found[0].source,
        )
    return trained
