"""The families of kernels: for each type of kernel its planner and its emitter, in one table.

    plan    kernel, target               -> how it is run, a value            (``kernels/planned.py``)
    emit    module, planned kernel, name -> the name of a function in the module
    packed  kernel, target, number       -> the kernel given that operand packed; None where it had better not be
    pack    module, kernel, plan, name   -> a function that packs the operand that the kernel is given packed

Nothing else in the compiler asks of which type a kernel is, but for what rewrites nests or packs operands. A new family
is a value in ``kernels/`` with its reference, and an entry here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from staticgrad.base.frozen import frozen
from staticgrad.compiler.emit.llvm import IRModule
from staticgrad.compiler.emit.nest.kernel import emit_nest, ranged_function
from staticgrad.compiler.emit.versions import emit_versions
from staticgrad.compiler.kernels.kernel import Kernel
from staticgrad.compiler.kernels.matrix import Contraction, Convolution, Packing
from staticgrad.compiler.kernels.nest import Nest
from staticgrad.compiler.kernels.planned import KernelPlan, Planned, PlannedKernel
from staticgrad.compiler.kernels.routines import Batch
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.plans.nest.facts import literals_of
from staticgrad.compiler.plans.nest.planning import planned as planned_nest
from staticgrad.compiler.plans.planner import KernelPlanner
from staticgrad.compiler.plans.versions import Versions

Write = Callable[[IRModule, Any, str], None]


@frozen
class Family:
    """The functions of one type of kernels; the module's docstring says what they take and give."""

    plan: Callable[[Any, Target], Planned]
    emit: Callable[[IRModule, Any, str], str]
    packed: Callable[[Any, Target, int], Planned | None] = lambda kernel, target, number: None
    pack: Callable[[IRModule, Any, Any, str], None] | None = None


@functools.cache
def family_of(kernel: type) -> Family:
    """The family of a type of kernels, whose modules are imported when a program has the first one."""
    return FAMILIES[kernel]()


def plan_kernel(kernel: Kernel, target: Target) -> Planned:
    """The plan of a kernel on a target."""
    return family_of(type(kernel)).plan(kernel, target)


def planner_of(target: Target) -> KernelPlanner:
    """The planner of a target, by the families of kernels."""
    return KernelPlanner(
        lambda kernel: plan_kernel(kernel, target),
        lambda kernel, number: packed_kernel(kernel, target, number),
    )


def packed_kernel(kernel: Kernel, target: Target, number: int) -> Planned | None:
    """The kernel that is given operand ``number`` packed, where that pays; the epilogue has no part in it."""
    return family_of(type(kernel)).packed(kernel, target, number)


def emit_kernel(module: IRModule, planned: Planned, name: str) -> str:
    """The name of the function that runs a kernel, emitted when first asked for: equal kernels share it. It takes the
    kernel's operands, scratch memory and, if the kernel ``is_shared``, the pool."""
    if isinstance(planned.plan, Versions):
        return _emit_versions(module, planned, name)
    return family_of(type(planned.kernel)).emit(module, planned, name)


def once(write: Write) -> Callable[[IRModule, Planned, str], str]:
    """An emitter that writes a function for each kernel that the module does not have yet."""

    def emit(module: IRModule, planned: Planned, name: str) -> str:
        key = (planned.kernel, _literals(planned.kernel), planned.is_shared)
        known = module.shared(key)
        if known is None:
            known = module.unique(name)
            write(module, planned, known)
            module.share(key, known)
        return known

    return emit


def _write_versions(module: IRModule, planned: Planned, name: str) -> None:
    assert isinstance(planned.plan, Versions)
    names = [emit_kernel(module, part, f"{name}.to{end}") for end, part in planned.plan.numbered]
    emit_versions(module, planned, names, name)


_emit_versions = once(_write_versions)


def _literals(kernel: Kernel) -> tuple[str, ...]:
    """A key that tells kernels apart that compare equal: numbers in nests, as 0.0 equals -0.0, and 1 True."""
    nest = kernel.epilogue if isinstance(kernel, Contraction | Convolution) else kernel
    return literals_of(nest) if isinstance(nest, Nest) else ()


def _epilogue(module: IRModule, kernel: Contraction | Convolution) -> str | None:
    return None if kernel.epilogue is None else ranged_function(module, kernel.epilogue)


def _plan_packing(kernel: Packing, target: Target) -> Planned:
    return PlannedKernel(kernel, plan_kernel(kernel.of, target).plan)


def _emit_packing(module: IRModule, planned: PlannedKernel[Packing, KernelPlan], name: str) -> None:
    of: Kernel = planned.kernel.of
    pack = family_of(type(of)).pack
    assert pack is not None
    pack(module, of, planned.plan, name)


def _packed_if(takes: Callable[[Any, Target, int], bool]) -> Callable[[Any, Target, int], Planned | None]:
    def packed(kernel: Contraction | Convolution, target: Target, number: int) -> Planned | None:
        found = plan_kernel(replace(kernel, packed=number), target) if takes(kernel, target, number) else None
        return found if found is not None and found.packed_bytes else None

    return packed


def _nests() -> Family:
    emit = once(emit_nest)
    return Family(planned_nest, lambda module, planned, name: emit(module, planned, "nest"))


def _routines() -> Family:
    from staticgrad.compiler.emit.routines.batch import emit_batch
    from staticgrad.compiler.plans.routines.batch import planned

    return Family(planned, once(emit_batch))


def _contractions() -> Family:
    from staticgrad.compiler.emit.contraction import kernel as contraction
    from staticgrad.compiler.emit.contraction.plain import emit_product
    from staticgrad.compiler.plans.contraction import plain, plan, versions

    def planned(kernel: Contraction, target: Target) -> Planned:
        if kernel.grouping:
            return versions.planned(kernel, target)
        if plain.always_suits(kernel, target):
            return plain.planned(kernel, target)
        usual = versions.planned(kernel, target)
        return plain.planned(kernel, target) if plain.suits_better(kernel, target, usual) else usual

    def takes_packed(kernel: Contraction, target: Target, number: int) -> bool:
        spares = target.machine.compact or target.machine.sparing
        return not spares and plan.takes_packed(kernel, target, number)

    def emit(module: IRModule, planned: PlannedKernel[Contraction, Any], name: str) -> None:
        how = emit_product if isinstance(planned.plan, plain.PlainProduct) else contraction.emit_contraction
        how(module, planned, name, _epilogue(module, planned.kernel))

    return Family(planned, once(emit), _packed_if(takes_packed), contraction.emit_packing)


def _convolutions() -> Family:
    from staticgrad.compiler.emit.convolution import kernel as convolution
    from staticgrad.compiler.plans.convolution import choice

    def emit(module: IRModule, planned: choice.PlannedConvolution, name: str) -> None:
        convolution.emit_convolution(module, planned, name, _epilogue(module, planned.kernel))

    return Family(convolution.PLANNER.planned, once(emit), _packed_if(choice.takes_packed), convolution.emit_packing)


FAMILIES: dict[type, Callable[[], Family]] = {
    Nest: _nests,
    Batch: _routines,
    Packing: lambda: Family(_plan_packing, once(_emit_packing)),
    Contraction: _contractions,
    Convolution: _convolutions,
}
