"""Arguments that seldom occur: a branch that is taken if any lane needs it, and calls lane by lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from staticgrad.compiler.emit.elementary.number import Num
from staticgrad.compiler.emit.llvm import Value, phi, suffix


def any_lane(mask: Num) -> Value:
    """True if an i1 mask is on in any lane, as a scalar i1."""
    if mask.lanes == 1:
        return mask.value
    return mask.f.intrinsic(f"llvm.vector.reduce.or.{suffix(mask.value.type)}", "i1", mask.value)


def rarely(condition: Num, common: Sequence[Num], rare: Callable[[], Sequence[Num]]) -> list[Num]:
    """``common``, replaced by what ``rare`` writes if ``condition`` holds in any lane: a branch, seldom taken."""
    f = condition.f
    slow, done = f.label("rare"), f.label("common")
    taken = any_lane(condition)
    before = f.current_block
    f.branch_if(taken, slow, done)
    f.block(slow)
    replaced = rare()
    end = f.current_block
    f.branch(done)
    f.block(done)
    return [
        Num(f, f.emit(c.value.type, phi((c.value, before), (r.value, end))))
        for c, r in zip(common, replaced, strict=True)
    ]


def one_by_one(name: str, operands: Sequence[Num]) -> Num:
    """Call the scalar function ``name`` of the module, double to double, for each lane."""
    f = operands[0].f
    if operands[0].lanes == 1:
        return Num(f, f.call(name, "double", *(v.value for v in operands)))
    with f.loop(0, operands[0].lanes, carry=[operands[0].value]) as loop:
        one = f.call(name, "double", *(f.extract(v.value, loop.index) for v in operands))
        loop.next(f.insert(loop.carried[0], one, loop.index))
    return Num(f, loop.results[0])
