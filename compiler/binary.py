"""Binaries: a program as the runtime loads it, found among those that were kept, or compiled now.

Input: a region, options, and what lies in the arena before. Output: the program's interface and its code in
memory; the program itself, with its plan, costs and texts, when asked for. What is kept is found by the digest of
the region before anything is compiled, so a hit runs no pass, no lowering, no placement, and imports neither the
compiler nor LLVM.

    kept ::= (arena bytes, borrows, workers, flops, bytes, polls, slots, checks), code

Slots and checks are kept without names: variables and gradients are numbers of the digest, and what a failed check says
is taken from the program that is compiled when one fails. Programs that call Python functions are compiled every time,
only their code is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import numpy as np

from staticgrad.base import config
from staticgrad.base.extents import OpenSize, is_open
from staticgrad.base.extents import from_plain as size_from_plain
from staticgrad.base.extents import to_plain as to_plain_size
from staticgrad.base.image import ImageError
from staticgrad.base.plain import Plain
from staticgrad.base.progress import shown
from staticgrad.base.types import DTYPE_NAMES, TensorType, dtype_of, product, sizes
from staticgrad.compiler.machine.target import extended
from staticgrad.compiler.native import cache
from staticgrad.compiler.native.module import (
    Code,
    Loaded,
    NativeModule,
    code_from_plain,
    code_to_plain,
    load_code,
)
from staticgrad.compiler.options import CompileOptions
from staticgrad.compiler.program.program import Interface, Program, Stepwise
from staticgrad.compiler.program.slots import (
    CallbackSlot,
    Check,
    CheckKind,
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
    collectives_of,
)
from staticgrad.compiler.regions.digest import Digest, NoDigest, digest
from staticgrad.compiler.regions.region import Region
from staticgrad.graph.graph import Graph
from staticgrad.graph.optable import Array
from staticgrad.ops.control.bodies import bodies_of

if TYPE_CHECKING:
    from staticgrad.compiler.native.tiers import TieredCode
    from staticgrad.compiler.placement.problems import Pinned

# Switches that look at stages.
WATCHING = (("DEBUG", "0"), ("EXPLAIN", "0"), ("VERIFY", "0"), ("PRINT_AFTER", ""), ("DUMP_DIR", ""))
LARGE = 4096  # bytes of a constant that are not kept where the region has them
SHORT_PRODUCTS = {"grouped_dot", "quantized_linear"}
KINDS: tuple[CheckKind, ...] = get_args(CheckKind)


class Binary:
    """A loaded program. ``interface`` says what it is called with, ``code`` where its functions are, ``tiers`` is that
    code if it is quick at first, ``was_kept`` says whether it was found rather than compiled, ``collectives`` the names
    of what it computes together with other processes."""

    __slots__ = ("_compile", "_program", "code", "collectives", "interface", "tiers", "was_kept")

    def __init__(
        self,
        interface: Interface,
        code: Loaded,
        was_kept: bool,
        compile: Callable[[], Program],
        program: Program | None = None,
    ) -> None:
        self.interface = interface
        self.code = code
        self.was_kept = was_kept
        self.collectives: tuple[str, ...] = ()
        self.tiers: TieredCode | None = None
        self._compile = compile
        self._program = program

    @property
    def program(self) -> Program:
        """The whole program, compiled now if it was loaded from what was kept."""
        if self._program is None:
            self._program = self._compile()
        return self._program

    @property
    def stepwise(self) -> Stepwise | None:
        """The steps and places of a program that is to be run step by step, else None: such a program is never one that
        was kept."""
        return None if self._program is None else self._program.stepwise

    def assembly(self) -> str:
        """The optimised machine code as text, made again."""
        from staticgrad.compiler.machine.target import named
        from staticgrad.compiler.native.codegen import assembly

        return assembly(self.program.modules, named(self.program.target))


def binary(region: Region, options: CompileOptions, pinned: Sequence[Pinned] = ()) -> Binary:
    """The program of a region, loaded. What is ``pinned`` lies in its arena before it runs."""
    if options.precision == "medium" or has_short_numbers(region.graph):
        options = replace(options, target=extended(options.target))

    def compiled() -> Program:
        from staticgrad.compiler.pipeline import compile_region

        return compile_region(region, options, pinned)

    made = _found_or_made(region, options, pinned, compiled)
    if any(isinstance(slot, CollectiveSlot) for slot in made.interface.slots):
        made.collectives = tuple(node.name for node in collectives_of(region.graph))
    return made


def has_short_numbers(graph: Graph) -> bool:
    """True if a graph has products of short numbers, for which processors have instructions, or may have some."""
    return any(
        node.op.name in SHORT_PRODUCTS
        or any(y.type.dtype.name == "bfloat16" for y in node.outputs)
        or any(has_short_numbers(body.graph) for body in bodies_of(node))
        for node in graph.nodes
    )


def _found_or_made(
    region: Region, options: CompileOptions, pinned: Sequence[Pinned], compiled: Callable[[], Program]
) -> Binary:
    names = _names(region, options, pinned)
    place = cache.key_of("program", names.text) if names is not None else None
    if names is not None and not _is_watched():
        found = _loaded(cache.load(place), names)
        if found is not None:
            return Binary(*found, True, compiled)
    with shown(len(region.graph.nodes)):
        return _fresh(compiled(), options, names, place)


def _names(region: Region, options: CompileOptions, pinned: Sequence[Pinned]) -> Digest | None:
    if cache.directory() is None:
        return None
    lying = tuple((p.offset, p.nbytes, p.feed, p.donated) for p in pinned)
    try:
        return digest(region, replace(options, tiers=False), lying)
    except NoDigest:
        return None


def _is_watched() -> bool:
    """True if the stages of compilations are to be shown, which a hit does not have."""
    return any(config.get(name) != default for name, default in WATCHING)


def _fresh(program: Program, options: CompileOptions, names: Digest | None, place: str | None) -> Binary:
    """The binary of a program that was compiled now."""
    interface, target = program.interface, options.target
    is_called_back = any(isinstance(slot, CallbackSlot) for slot in interface.slots)
    if is_called_back or (names is None and cache.directory() is not None):  # its code is kept by its text
        return Binary(interface, NativeModule(program.modules, target), False, lambda: program, program)
    from staticgrad.compiler.native.kernels import at_once, program_objects
    from staticgrad.compiler.native.tiers import TieredCode, quick_modules

    def keep(code: Code) -> None:
        if names is not None:
            cache.save(place, to_plain(interface, code, names))

    objects = program_objects(program.modules, target)
    has_tiers = options.tiers and program.stepwise is None and not objects.are_known()
    quick = quick_modules(program) if has_tiers else None
    tiers = TieredCode(objects, quick, target, keep if names is not None else None) if quick is not None else None
    loaded: Loaded | None = tiers
    if loaded is None:
        code = objects.code([False] * len(program.modules), at_once(target))
        loaded = load_code(code)
        keep(code)
    made = Binary(interface, loaded, False, lambda: program, program)
    made.tiers = tiers
    return made


def _loaded(data: Plain, names: Digest) -> tuple[Interface, Loaded] | None:
    if data is None:
        return None
    try:
        interface, code = from_plain(data, names)
        return interface, load_code(code)
    except (ValueError, ImageError):
        return None


# -- as plain data --------------------------------------------------------------------------------------------------


def to_plain(interface: Interface, code: Code, names: Digest) -> Plain:
    """The plain data that are kept of a program that calls no Python functions; ``names`` are those of its region."""
    numbers = {
        "variable": {key: number for number, key in enumerate(names.variables)},
        "gradient": {key: number for number, key in enumerate(names.gradients)},
    }
    large = ((number, attrs.value) for number, attrs in enumerate(names.constants) if len(attrs.data) >= LARGE)
    given = {_place(value): number for number, value in large}

    def slot(slot: Slot) -> Plain:
        match slot:
            case FeedSlot() | FetchSlot():
                return ("feed" if isinstance(slot, FeedSlot) else "fetch", slot.index, _type(slot.type))
            case StateSlot():
                return ("variable", numbers["variable"][slot.name], _type(slot.type), slot.written)
            case GradSlot():
                return ("gradient", numbers["gradient"][slot.key], _type(slot.type))
            case KeySlot():
                return ("key", slot.again)
            case VersionSlot():
                return ("version", numbers["variable"][slot.name])
            case CollectiveSlot():
                how = (slot.name, slot.ranks, slot.reduction, slot.root, slot.equalizes)
                return ("collective", _type(slot.type), *how)
            case PreparedSlot():
                return ("prepared", slot.count)
            case SizesSlot():
                return ("sizes", tuple([(size.number, size.low, size.high) for size in slot.sizes]))
            case ConstantSlot():
                number = given.get(_place(slot.value)) if slot.value.flags.c_contiguous else None
                content = slot.value.tobytes() if number is None else number
                return ("constant", _type(TensorType(slot.value.shape, slot.value.dtype)), content)
        raise TypeError(f"{slot!r} is not kept")

    checks = tuple((KINDS.index(c.kind), to_plain_size(c.size), c.offset, c.wraps) for c in interface.checks)
    numbers_of = (interface.arena_bytes, interface.borrows, interface.workers, interface.flops, interface.bytes)
    return ((*numbers_of, interface.polls, tuple(map(slot, interface.slots)), checks), code_to_plain(code))


def from_plain(data: Plain, names: Digest) -> tuple[Interface, Code]:
    """The program that was kept, with the names of the region it is loaded for.

    Raises:
        ValueError, ImageError: the data are not those of a program.
    """
    match data:
        case (
            (int(arena), bool(borrows), int(workers), int(flops), int(moved), bool(polls), tuple(slots), tuple(checks)),
            code,
        ) if arena >= 0 and workers >= 1:
            kept = tuple(_slot(slot, names) for slot in slots)
            interface = Interface(kept, arena, tuple(map(_check, checks)), borrows, workers, flops, moved, polls)
            return interface, code_from_plain(code)
    raise ValueError("no program")


def _slot(data: Plain, names: Digest) -> Slot:
    match data:
        case ("feed", int(index), type_):
            return FeedSlot(index, _type_of(type_))
        case ("fetch", int(index), type_):
            return FetchSlot(index, _type_of(type_))
        case ("variable", int(number), type_, bool(written)) if 0 <= number < len(names.variables):
            return StateSlot(names.variables[number], _type_of(type_), written)
        case ("gradient", int(number), type_) if 0 <= number < len(names.gradients):
            return GradSlot(names.gradients[number], _type_of(type_))
        case ("key", bool(again)):
            return KeySlot(again)
        case ("version", int(number)) if 0 <= number < len(names.variables):
            return VersionSlot(names.variables[number])
        case ("collective", type_, str(name), int(ranks), str(reduction), int(root), bool(equalizes)):
            return CollectiveSlot(name, _type_of(type_), ranks, reduction, root, equalizes)
        case ("prepared", int(count)) if count >= 0:
            return PreparedSlot(count)
        case ("sizes", tuple(ranges)):
            return SizesSlot(tuple(map(_open_size, ranges)))
        case ("constant", type_, bytes(content)):
            return _constant(_type_of(type_), content)
        case ("constant", type_, int(number)) if 0 <= number < len(names.constants):
            return _constant(_type_of(type_), names.constants[number].data)
    raise ValueError(f"no slot: {data!r}")


def _open_size(data: Plain) -> OpenSize:
    match data:
        case (int(number), int(low), int(high)) if number >= 0 and 0 < low <= high:
            return OpenSize(number, low, high)
    raise ValueError(f"no size: {data!r}")


def _place(value: Array) -> tuple[int, int]:
    """The address and the bytes of a constant, for which a program that is kept has its number."""
    return value.ctypes.data, value.nbytes


def _constant(type_: TensorType, content: bytes | memoryview) -> ConstantSlot:
    if product(type_.shape) * type_.dtype.itemsize != len(content):
        raise ValueError(f"a constant {type_} of {len(content)} bytes")
    return ConstantSlot(np.frombuffer(content, type_.dtype).reshape(sizes(type_.shape)))


def _check(data: Plain) -> Check:
    match data:
        case (int(kind), size, int(offset), bool(wraps)) if 0 <= kind < len(KINDS) and offset >= 0:
            return Check(KINDS[kind], "", None, size_from_plain(size), offset, wraps)
    raise ValueError(f"no check: {data!r}")


def _type(type_: TensorType) -> Plain:
    return (type_.dtype.name, tuple(map(to_plain_size, sizes(type_.shape))))


def _type_of(data: Plain) -> TensorType:
    match data:
        case (str(dtype), tuple(shape)) if dtype in DTYPE_NAMES:
            known = tuple(map(size_from_plain, shape))
            if all(is_open(size) or size >= 0 for size in known):
                return TensorType(known, dtype_of(dtype))
    raise ValueError(f"no type: {data!r}")
