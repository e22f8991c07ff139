"""Branches, loops and calls of what lanes compute: they end when the last lane does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staticgrad.compiler.emit.elementary.number import Num
from staticgrad.compiler.emit.elementary.rare import any_lane
from staticgrad.compiler.emit.llvm import Function, Value, lanes_of
from staticgrad.compiler.emit.scalars.lane import BOOL, Lane, LaneBuilder

OUTLINED_LANES = 8  # of a call of a function that was written apart

Make = Callable[[Function, int], LaneBuilder]


def either(b: LaneBuilder, condition: Lane, then: Callable[[], Lane], otherwise: Callable[[], Lane]) -> Lane:
    """The value of ``then`` or of ``otherwise`` in each lane; what no lane takes is not run."""
    chosen = _if_any(b, condition, then)
    return b.select(condition, chosen, _if_any(b, b.logical_not(condition), otherwise))


def _if_any(b: LaneBuilder, condition: Lane, write: Callable[[], Lane]) -> Lane:
    """The value of ``write`` if ``condition`` holds in any lane; else zeros, and nothing runs."""
    found: list[Lane] = []

    def then() -> Sequence[Value]:
        found.append(write())
        return [found[0].value]

    def zeros() -> Sequence[Value]:
        return [b.const(0, found[0].dtype).value]

    (value,) = b.function.choose(any_lane(Num(b.function, condition.value)), then, zeros)
    return Lane(value, found[0].dtype)


def loop(
    b: LaneBuilder, turns: int, start: Sequence[Lane], turn: Callable[[Sequence[Lane]], tuple[Lane, Sequence[Lane]]]
) -> list[Lane]:
    """At most ``turns`` turns, while one goes on in any lane; lanes that are done keep their values."""
    f = b.function
    dtypes = [x.dtype for x in start]
    active = b.const(True, BOOL)
    carry = [f.index(turns), active.value, *(x.value for x in start)]

    def goes_on(carried: Sequence[Value]) -> Value:
        left = f.compare("icmp sgt", carried[0], f.const(0, f.word))
        return f.binary("and", left, any_lane(Num(f, carried[1])))

    with f.repeat(carry, goes_on) as loop:
        left, staying, *carried = loop.carried
        values = [Lane(value, dtype) for value, dtype in zip(carried, dtypes, strict=True)]
        stays, following = turn(values)
        inside = Lane(staying, BOOL)
        taken = [b.select(inside, new, old).value for new, old in zip(following, values, strict=True)]
        loop.next(f.binary("add", left, f.const(-1, f.word)), b.logical_and(inside, stays).value, *taken)
    return [Lane(value, dtype) for value, dtype in zip(loop.results[2:], dtypes, strict=True)]


def outlined(b: LaneBuilder, make: Make, write: Callable[..., Lane], how: tuple[Any, ...], *values: Lane) -> Lane:
    """The value that ``write`` gives, as a function apart, to which ``make`` gives a builder: a call for each
    ``OUTLINED_LANES`` lanes, as loops end when the last lane does."""
    width = min(b.lanes, OUTLINED_LANES)
    pieces = [_called(b, make, write, how, width, [_part(b, x, i, width) for x in values])
              for i in range(0, b.lanes, width)]  # fmt: skip
    while len(pieces) > 1:
        lanes = 2 * lanes_of(pieces[0].value.type)
        pieces = [
            Lane(b.function.shuffle(low.value, high.value, range(lanes)), low.dtype)
            for low, high in zip(pieces[::2], pieces[1::2], strict=True)
        ]
    return pieces[0]


def _part(b: LaneBuilder, x: Lane, first: int, width: int) -> Lane:
    if width == b.lanes:
        return x
    return Lane(b.function.shuffle(x.value, None, range(first, first + width)), x.dtype)


def _called(
    b: LaneBuilder, make: Make, write: Callable[..., Lane], how: tuple[Any, ...], lanes: int, values: Sequence[Lane]
) -> Lane:
    module = b.function.module
    key = ("outlined", write, how, lanes, *(x.dtype for x in values))
    types = [x.value.type for x in values]
    name, dtype = module.shared(key), values[0].dtype
    if name is None:
        f = module.function(module.unique(write.__name__.strip("_")), types, types[0])
        params = [Lane(param, x.dtype) for param, x in zip(f.params, values, strict=True)]
        result = write(make(f, lanes), *how, *params)
        if result.dtype != dtype:
            raise TypeError(f"{write.__name__}: a function of its own gives the dtype of its first operand")
        f.ret(result.value)
        name = module.share(key, f.finish())
    return Lane(b.function.call(name, types[0], *(x.value for x in values)), dtype)
