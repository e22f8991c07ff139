"""What a program's steps do, as text, and which memories each of them touches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from staticgrad.compiler.kernels.matrix import Contraction, Packing
from staticgrad.compiler.kernels.nest import Access, Compute, Constant, Instr, Iota, Load, Nest, Reduce, Store
from staticgrad.compiler.kernels.routines import Batch
from staticgrad.compiler.memory.plan import Plan
from staticgrad.compiler.program import (
    CallbackSlot,
    ConstantSlot,
    FeedSlot,
    FetchSlot,
    GradSlot,
    KeySlot,
    PreparedSlot,
    Slot,
    StateSlot,
    StepFlow,
    VersionSlot,
)
from staticgrad.compiler.steps.step import Kernel, Memory, Step, Temp
from staticgrad.phases import phase


@phase("describe")
def describe_flows(steps: Sequence[Step], slots: Sequence[Slot], plan: Plan) -> tuple[StepFlow, ...]:
    """What each step does and which memories it touches, by their numbers (``StepFlow``)."""
    numbers = {memory: number for number, memory in enumerate((*plan.temps, *slots))}

    def numbered(memories: Iterable[Memory]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(numbers[memory] for memory in memories if memory in numbers))

    return tuple(
        StepFlow(numbered(step.reads), numbered((*step.writes, *step.adds)), _step(time, step, plan))
        for time, step in enumerate(steps)
    )


def _step(time: int, step: Step, plan: Plan) -> str:
    """A paragraph: the step's kernel, its operands and where they lie."""
    operands = ", ".join(_memory(o.memory, plan) + (f"+{o.offset}" if o.offset else "") for o in step.operands)
    source = f"  # {step.source}" if step.source is not None else ""
    lines = [f"{time}: {step.family} {step.name}({operands}){source}"]
    if step.kernel is not None:
        lines.append(_indent(describe_kernel(step.kernel)))
    if step.loop is not None:
        lines.append(_indent(step.loop.title))
        lines += [
            _indent(_step(inner_time, inner, part.plan))
            for part in step.loop.parts
            for inner_time, inner in enumerate(part.steps)
        ]
    return "\n".join(lines)


def _indent(text: str) -> str:
    return "\n".join("    " + line for line in text.split("\n"))


def _memory(memory: Memory, plan: Plan) -> str:
    match memory:
        case Temp():
            return f"{memory.name}@{plan.offsets[memory]}[{memory.nbytes}]"
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
        case VersionSlot():
            return f"version:{memory.name}"
        case PreparedSlot():
            return "prepared"


def describe_kernel(kernel: Kernel) -> str:
    if isinstance(kernel, Nest):
        return _nest(kernel)
    if isinstance(kernel, Batch):
        return f"{kernel.count} × {kernel.routine.text}"
    if isinstance(kernel, Packing):
        return "pack for " + describe_kernel(kernel.of)
    if isinstance(kernel, Contraction):
        lines = [
            f"contraction {kernel.dtype.name} batch {kernel.batch} {kernel.m}x{kernel.k} · {kernel.k}x{kernel.n},"
            f" strides {kernel.a_strides} {kernel.b_strides} -> {kernel.c_strides}"
        ]
    else:
        lines = [
            f"convolution {kernel.direction} {kernel.dtype.name} x({kernel.batch}, {kernel.channels}, {kernel.height},"
            f" {kernel.width}) w{kernel.kernel} y({kernel.batch}, {kernel.filters}, {kernel.out_height},"
            f" {kernel.out_width}) stride {kernel.stride} padding {kernel.padding} groups {kernel.groups}"
        ]
    if kernel.epilogue is not None:
        lines += [
            "epilogue" + ("" if kernel.store_raw else " (the product itself is not stored)"),
            _nest(kernel.epilogue),
        ]
    return "\n".join(lines)


def _nest(nest: Nest) -> str:
    lines = [f"for {nest.outer} × {nest.inner}"]
    lines += [f"  v{number} = {_instr(instr)}" for number, instr in enumerate(nest.body)]
    return "\n".join(lines)


def _instr(instr: Instr) -> str:
    match instr:
        case Constant():
            return f"constant {instr.value} : {instr.dtype.name}"
        case Iota():
            return f"index of dim {instr.dim}"
        case Load():
            return f"load {_access(instr.access)}{_guard(instr.guard)} : {instr.dtype.name}"
        case Compute():
            return f"{instr.op}({', '.join(f'v{a}' for a in instr.args)}) : {instr.dtype.name}"
        case Reduce():
            return f"reduce {instr.kind} v{instr.arg} : {instr.dtype.name}"
        case Store():
            verb = "add" if instr.mode == "add" else "store"
            return f"{verb} v{instr.value} to {_access(instr.access)}{_guard(instr.guard)}"


def _access(access: Access) -> str:
    terms = "".join(f" + v{value}*{stride}" for value, stride in access.terms)
    return f"arg{access.arg}[{access.offset} + {access.strides}{terms}]"


def _guard(guard: int | None) -> str:
    return "" if guard is None else f" where v{guard}"
