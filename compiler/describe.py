"""What a program's kernels do, as text."""

from __future__ import annotations

from collections.abc import Sequence

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
    StateSlot,
    VersionSlot,
)
from staticgrad.compiler.steps.step import Kernel, Memory, Step, Temp
from staticgrad.phases import phase


@phase("describe")
def describe_steps(steps: Sequence[Step], plan: Plan) -> str:
    """A paragraph a step: its kernel, its operands and where they lie."""
    parts = []
    for time, step in enumerate(steps):
        operands = ", ".join(_memory(o.memory, plan) + (f"+{o.offset}" if o.offset else "") for o in step.operands)
        source = f"  # {step.source}" if step.source is not None else ""
        parts.append(f"{time}: {step.family} {step.name}({operands}){source}")
        if step.kernel is not None:
            parts.append(_indent(describe_kernel(step.kernel)))
        if step.loop is not None:
            inside = [f"{step.loop.title}", *(describe_steps(part.steps, part.plan) for part in step.loop.parts)]
            parts.append(_indent("\n".join(inside)))
    return "\n".join(parts)


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
