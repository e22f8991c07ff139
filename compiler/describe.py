"""The text of a program's steps, and the memories that each of them touches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from staticgrad.base.phases import phase
from staticgrad.compiler.program.memories import Memory, Temp
from staticgrad.compiler.program.plan import Plan
from staticgrad.compiler.program.program import StepFlow
from staticgrad.compiler.program.slots import (
    CallbackSlot,
    CollectiveSlot,
    ConstantSlot,
    FeedSlot,
    FetchSlot,
    GradSlot,
    KeySlot,
    PreparedSlot,
    SizesSlot,
    Slot,
    StateSlot,
    VersionSlot,
)
from staticgrad.compiler.program.step import Step


@phase("describe")
def describe_flows(steps: Sequence[Step], slots: Sequence[Slot], plan: Plan) -> tuple[StepFlow, ...]:
    """The text of each step and the memories that it touches, by their numbers (``StepFlow``)."""
    numbers = {memory: number for number, memory in enumerate((*plan.temps, *slots))}

    def numbered(memories: Iterable[Memory]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(numbers[memory] for memory in memories if memory in numbers))

    return tuple(
        StepFlow(numbered(step.reads), numbered((*step.writes, *step.adds)), step_text(time, step, plan))
        for time, step in enumerate(steps)
    )


def step_text(time: int, step: Step, plan: Plan | None = None) -> str:
    """A paragraph: the step's kernel, planned or not yet, and its operands, with offsets where there is a plan."""
    operands = ", ".join(_memory(o.memory, plan) + (f"+{o.offset}" if o.offset else "") for o in step.operands)
    source = f"  # {step.source}" if step.source is not None else ""
    lines = [f"{time}: {step.family} {step.name}({operands}){source}"]
    kernel = step.planned or step.kernel
    if kernel is not None:
        lines.append(_indent(kernel.text))
    if step.loop is not None:
        lines.append(_indent(step.loop.title))
        lines += [
            _indent(step_text(inner_time, inner, part.plan))
            for part in step.loop.parts
            for inner_time, inner in enumerate(part.steps)
        ]
    return "\n".join(lines)


def _indent(text: str) -> str:
    return "\n".join("    " + line for line in text.split("\n"))


def _memory(memory: Memory, plan: Plan | None) -> str:
    match memory:
        case SizesSlot():
            return "sizes"
        case Temp():
            place = f"@{plan.offsets[memory]}" if plan is not None else ""
            return f"{memory.name}{place}[{memory.nbytes}]"
        case FeedSlot():
            return f"feed{memory.index}"
        case FetchSlot():
            return f"fetch{memory.index}"
        case StateSlot():
            return f"state:{memory.name}"
        case GradSlot():
            return f"grad:{memory.key}"
        case ConstantSlot():
            return f"constant[{memory.value.nbytes}]"
        case KeySlot():
            return "key"
        case CallbackSlot():
            return "callback"
        case CollectiveSlot():
            return "mpi"
        case VersionSlot():
            return f"version:{memory.name}"
        case PreparedSlot():
            return "prepared"
