"""Index arithmetic in 32 bits: guards and masks compare indices, of which a register holds twice the number in half the
width.

Input: a nest; output: the same nest, with values that follow from indices and constants in int32 where they fit
and where their dtype is not seen. Instructions keep their numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from staticgrad.base.extents import highest, is_open, lowest
from staticgrad.compiler.kernels.nest import Compute, Constant, Instr, Iota, Nest
from staticgrad.compiler.plans.nest.facts import operands

INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)
BOUNDS = np.iinfo(INT32)


def narrowed(nest: Nest) -> Nest:
    """The nest with index arithmetic in int32 where that makes no difference."""
    ranges = _ranges(nest)
    if not ranges:
        return nest
    chosen = set(ranges)
    users: dict[int, list[int]] = defaultdict(list)
    for number, instr in enumerate(nest.body):
        for value in operands(instr):
            users[value].append(number)

    def fits(number: int) -> bool:
        instr = nest.body[number]
        if isinstance(instr, Compute) and not chosen.issuperset(instr.args):
            return False
        return all(_takes(nest.body[user], user, chosen) for user in users[number])

    while dropped := [number for number in chosen if not fits(number)]:
        chosen.difference_update(dropped)

    def visit(number: int, instr: Instr) -> Instr:
        if number in chosen and isinstance(instr, Constant | Iota | Compute):
            return replace(instr, dtype=INT32)
        if isinstance(instr, Compute) and instr.op == "astype" and instr.dtype == INT32 and instr.args[0] in ranges:
            source = nest.body[instr.args[0]]
            return replace(source, dtype=INT32) if isinstance(source, Iota) else instr
        return instr

    return replace(nest, body=tuple(visit(number, instr) for number, instr in enumerate(nest.body)))


def _takes(user: Instr, number: int, chosen: set[int]) -> bool:
    """True if an instruction reads its operands in int32 as well as in int64: what makes a bool of integers compares
    them."""
    if not isinstance(user, Compute):
        return False
    return user.op == "astype" or ((user.dtype == np.bool_ or number in chosen) and chosen.issuperset(user.args))


def _ranges(nest: Nest) -> Mapping[int, tuple[int, int]]:
    """The least and the largest that int64 values can be which follow from indices and constants, if int32 has both."""
    found: dict[int, tuple[int, int]] = {}
    if not any(isinstance(instr, Iota) for instr in nest.body):
        return found
    for number, instr in enumerate(nest.body):
        match instr:
            case Iota(dim):
                ends = [0, nest.dims[dim] - 1]
            case Constant(value, dtype) if dtype == INT64:
                ends = [value if isinstance(value, int) and is_open(value) else int(value)]
            case Compute("add" | "subtract" | "multiply" as op, _, (a, b), dtype) if (
                dtype == INT64 and a in found and b in found
            ):
                ends = [_combined(op, x, y) for x in found[a] for y in found[b]]
            case _:
                continue
        if BOUNDS.min <= min(map(lowest, ends)) and max(map(highest, ends)) <= BOUNDS.max:
            found[number] = min(map(lowest, ends)), max(map(highest, ends))
    return found


def _combined(op: str, a: int, b: int) -> int:
    return a + b if op == "add" else a - b if op == "subtract" else a * b
