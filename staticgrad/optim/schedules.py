"""Schedules: learning rates that follow the step. ``Adam(lr=sg.optim.schedules.cosine(1e-3, steps=1000))``.

A schedule is a function of the symbolic step, a float64 scalar tensor that counts from 0 how many runs have updated
before, and gives the learning rate, a scalar. The functions here make such functions; one of the user's own is as good:
``lr=lambda step: 1e-3 / sg.sqrt(step + 1)``. The count is state of the optimizer, ``opt.step_count``: it is saved and
restored, and nothing is compiled when it advances.

Formulas are those of ``torch.optim.lr_scheduler`` with the rates themselves as arguments. All of them are elementwise,
so that a whole course can be computed at once: ``sess.run(schedule(sg.arange(1000)))``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from staticgrad.base.boundary import expose
from staticgrad.base.errors import GraphError
from staticgrad.base.hints import missing_from_module
from staticgrad.base.types import float64, integer, integers, number
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as o

Schedule = Callable[[Tensor], Any]  # from the step, a float64 tensor, to the learning rate: a tensor or a number


def _schedule(what: str, rate: Callable[[Tensor], Tensor]) -> Schedule:
    """The schedule of a formula, which takes the step as float64."""

    def schedule(step: Any) -> Tensor:
        return rate(o.astype(step, float64))

    schedule.__name__ = schedule.__qualname__ = what
    return schedule


def _number(value: float, what: str) -> float:
    """A rate or factor of at least 0."""
    return number(value, f"schedules.{what}", 0.0)


def _count(value: int, what: str) -> int:
    """A number of steps, at least 1."""
    return integer(value, f"schedules.{what}", 1)


def _rising(values: Sequence[int], what: str) -> tuple[int, ...]:
    """Steps in increasing order."""
    steps = integers(values, f"schedules.{what}", 0)
    if list(steps) != sorted(set(steps)):
        raise GraphError(f"schedules.{what}: expected increasing steps, actual {values!r}")
    return steps


def constant(lr: float) -> Schedule:
    """The same learning rate at every step: a part of ``sequential``.

    Example:
        >>> schedule = sg.optim.schedules.constant(0.5)
        >>> sg.Session().run(schedule(sg.arange(3)))
        array([0.5, 0.5, 0.5])
    """
    rate = _number(lr, "constant: lr")
    return _schedule("constant", lambda step: o.full_like(step, rate))


def exponential(lr: float, gamma: float) -> Schedule:
    """lr·gammaᵗ, as ``ExponentialLR``.

    Args:
        lr: the learning rate of the first step.
        gamma: the factor from step to step.

    Example:
        >>> schedule = sg.optim.schedules.exponential(1.0, gamma=0.5)
        >>> sg.Session().run(schedule(sg.arange(4)))
        array([1.   , 0.5  , 0.25 , 0.125])
    """
    first, factor = _number(lr, "exponential: lr"), _number(gamma, "exponential: gamma")
    return _schedule("exponential", lambda step: o.pow(factor, step) * first)


def step(lr: float, step_size: int, gamma: float = 0.1) -> Schedule:
    """lr times ``gamma`` for every ``step_size`` steps that are over, as ``StepLR``.

    Example:
        >>> schedule = sg.optim.schedules.step(1.0, step_size=2, gamma=0.5)
        >>> sg.Session().run(schedule(sg.arange(5)))
        array([1.  , 1.  , 0.5 , 0.5 , 0.25])
    """
    first, factor, size = _number(lr, "step: lr"), _number(gamma, "step: gamma"), _count(step_size, "step: step_size")
    return _schedule("step", lambda step: o.pow(factor, o.floor(step / size)) * first)


def multistep(lr: float, milestones: Sequence[int], gamma: float = 0.1) -> Schedule:
    """lr times ``gamma`` for every milestone that is reached, as ``MultiStepLR``.

    Args:
        milestones: the steps at which the rate falls, in increasing order.

    Raises:
        GraphError: milestones in another order.

    Example:
        >>> schedule = sg.optim.schedules.multistep(1.0, milestones=[1, 3], gamma=0.5)
        >>> sg.Session().run(schedule(sg.arange(5)))
        array([1.  , 0.5 , 0.5 , 0.25, 0.25])
    """
    first, factor = _number(lr, "multistep: lr"), _number(gamma, "multistep: gamma")
    steps = _rising(milestones, "multistep: milestones")
    rates = [first * factor**reached for reached in range(len(steps) + 1)]
    return _schedule("multistep", lambda step: _by_part(step, steps, [o.full_like(step, rate) for rate in rates]))


def cosine(lr: float, steps: int, minimum: float = 0.0) -> Schedule:
    """From ``lr`` down to ``minimum`` along half a period of a cosine: minimum + (lr - minimum)·(1 + cos(π·t/steps))/2.

    As ``CosineAnnealingLR`` with ``T_max=steps`` up to there; after it the rate stays at the minimum, where that of
    PyTorch rises again.

    Example:
        >>> schedule = sg.optim.schedules.cosine(1.0, steps=4)
        >>> sg.Session().run(schedule(sg.arange(6))).round(3)
        array([1.   , 0.854, 0.5  , 0.146, 0.   , 0.   ])
    """
    first, last = _number(lr, "cosine: lr"), _number(minimum, "cosine: minimum")
    over = _part(_count(steps, "cosine: steps"))
    return _schedule("cosine", lambda step: _annealed_by_cosine(first, last, over(step)))


def linear(start: float, end: float, steps: int) -> Schedule:
    """From ``start`` to ``end`` in equal steps, and ``end`` from then on, as ``LinearLR``.

    Example:
        >>> schedule = sg.optim.schedules.linear(1.0, 0.0, steps=4)
        >>> sg.Session().run(schedule(sg.arange(6)))
        array([1.  , 0.75, 0.5 , 0.25, 0.  , 0.  ])
    """
    first, last = _number(start, "linear: start"), _number(end, "linear: end")
    over = _part(_count(steps, "linear: steps"))
    return _schedule("linear", lambda step: _annealed_by_line(first, last, over(step)))


def polynomial(lr: float, steps: int, power: float = 1.0) -> Schedule:
    """lr·(1 - t/steps)**power, and 0 from ``steps`` on, as ``PolynomialLR``.

    Example:
        >>> schedule = sg.optim.schedules.polynomial(1.0, steps=4, power=2.0)
        >>> sg.Session().run(schedule(sg.arange(5)))
        array([1.    , 0.5625, 0.25  , 0.0625, 0.    ])
    """
    first, exponent = _number(lr, "polynomial: lr"), _number(power, "polynomial: power")
    over = _part(_count(steps, "polynomial: steps"))
    return _schedule("polynomial", lambda step: o.pow(1.0 - over(step), exponent) * first)


def one_cycle(
    max_lr: float,
    steps: int,
    pct_start: float = 0.3,
    anneal_strategy: str = "cos",
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
    *,
    three_phase: bool = False,
) -> Schedule:
    """Up from max_lr/div_factor to ``max_lr`` and down to max_lr/(div_factor·final_div_factor), as ``OneCycleLR``
    (Smith and Topin 2018). After the last step the rate stays where it is.

    Args:
        max_lr: the largest learning rate.
        steps: how many there are.
        pct_start: the part of them in which the rate rises, in (0, 1).
        anneal_strategy: "cos" or "linear", how it rises and falls.
        div_factor: what the first rate is smaller by.
        final_div_factor: what the last rate is smaller than the first by.
        three_phase: fall to the first rate in the number of steps in which it rose, and from there to the last.

    Raises:
        GraphError: another strategy, or a part that leaves a phase without steps.

    Example:
        >>> schedule = sg.optim.schedules.one_cycle(1.0, steps=10, anneal_strategy="linear")
        >>> sg.Session().run(schedule(sg.arange(10))).round(2)
        array([0.04, 0.52, 1.  , 0.86, 0.71, 0.57, 0.43, 0.29, 0.14, 0.  ])
    """
    if anneal_strategy not in _ANNEALED:
        raise GraphError(f'schedules.one_cycle: expected "cos" or "linear", actual {anneal_strategy!r}')
    annealed = _ANNEALED[anneal_strategy]
    largest, count = _number(max_lr, "one_cycle: max_lr"), _count(steps, "one_cycle: steps")
    first = largest / _number(div_factor, "one_cycle: div_factor")
    rates = [first, largest, *([first] if three_phase else []), first / _number(final_div_factor, "one_cycle: final")]
    peak = number(pct_start, "schedules.one_cycle: pct_start") * count - 1
    ends = [0.0, peak, *([2 * peak] if three_phase else []), count - 1.0]
    if ends != sorted(set(ends)):
        raise GraphError(f"schedules.one_cycle: {steps} steps and pct_start={pct_start!r} leave a phase without steps")

    def rate(step: Tensor) -> Tensor:
        pieces = list(zip(ends, ends[1:], rates, rates[1:], strict=False))
        parts = [annealed(a, b, o.clip((step - start) / (end - start), 0, 1)) for start, end, a, b in pieces]
        result: Tensor = parts[-1]
        for end, part in zip(ends[-2:0:-1], parts[-2::-1], strict=True):
            result = o.where(o.less_equal(step, end), part, result)
        return result

    return _schedule("one_cycle", rate)


def warmup(schedule_or_lr: Schedule | float, steps: int, start: float = 0.0) -> Schedule:
    """A line from ``start`` to where a schedule begins, in ``steps`` steps, and then that schedule, which counts its
    own steps from there: ``sequential([linear(start, schedule(0), steps), schedule], [steps])``.

    Args:
        schedule_or_lr: what follows; a number is a constant.
        steps: how many steps the line takes.
        start: the learning rate of the first step.

    Example:
        >>> schedules = sg.optim.schedules
        >>> schedule = schedules.warmup(schedules.cosine(1.0, steps=4), steps=2)
        >>> sg.Session().run(schedule(sg.arange(7))).round(3)
        array([0.   , 0.5  , 1.   , 0.854, 0.5  , 0.146, 0.   ])
    """
    first, count, after = _number(start, "warmup: start"), _count(steps, "warmup: steps"), _part_of(schedule_or_lr)

    def rising(step: Tensor) -> Tensor:
        line: Tensor = first + (after(o.zeros_like(step)) - first) * (step / count)
        return line

    return sequential([rising, after], [count])


def sequential(schedules: Sequence[Schedule | float], milestones: Sequence[int]) -> Schedule:
    """One schedule after the other, each counting its own steps from where it begins, as ``SequentialLR``.

    Args:
        schedules: schedules; numbers are constants.
        milestones: the steps at which the second, third, … begins, in increasing order.

    Raises:
        GraphError: not one milestone less than schedules, or milestones in another order.

    Example:
        >>> schedules = sg.optim.schedules
        >>> schedule = schedules.sequential([1.0, schedules.exponential(0.5, gamma=0.5)], [2])
        >>> sg.Session().run(schedule(sg.arange(5)))
        array([1.   , 1.   , 0.5  , 0.25 , 0.125])
    """
    parts, steps = [_part_of(given) for given in schedules], _rising(milestones, "sequential: milestones")
    if len(parts) != len(steps) + 1:
        raise GraphError(
            f"schedules.sequential: expected one milestone less than schedules, actual {len(steps)} for {len(parts)}"
        )

    def rate(step: Tensor) -> Tensor:
        starts = (0, *steps)
        rates = [part(o.maximum(step - start, 0.0)) for part, start in zip(parts, starts, strict=True)]
        return _by_part(step, steps, rates)

    return _schedule("sequential", rate)


def _part_of(given: Schedule | float) -> Schedule:
    """A schedule as it is; for a number the constant one."""
    if callable(given) and not isinstance(given, Tensor):
        return given
    return constant(given)


def _part(steps: int) -> Callable[[Tensor], Tensor]:
    """A function from a step to the part of ``steps`` that is over, in [0, 1]."""
    return lambda step: o.minimum(step, float(steps)) / steps


def _by_part(step: Tensor, milestones: Sequence[int], rates: Sequence[Any]) -> Tensor:
    """The first of the rates before the first milestone, the second from there to the second, and so on."""
    result = rates[-1]
    for milestone, rate in zip(milestones[::-1], rates[-2::-1], strict=True):
        result = o.where(o.less(step, float(milestone)), rate, result)
    return o.astype(result, float64)


def _annealed_by_cosine(first: float, last: float, part: Tensor) -> Tensor:
    """From ``first`` to ``last`` along half a period of a cosine, of which ``part`` in [0, 1] is over."""
    return last + (first - last) / 2 * (1.0 + o.cos(math.pi * part))


def _annealed_by_line(first: float, last: float, part: Tensor) -> Tensor:
    return first + (last - first) * part


_ANNEALED = {"cos": _annealed_by_cosine, "linear": _annealed_by_line}

__all__ = [
    "constant",
    "cosine",
    "exponential",
    "linear",
    "multistep",
    "one_cycle",
    "polynomial",
    "sequential",
    "step",
    "warmup",
]

expose(globals())


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> NoReturn:
    raise missing_from_module(__name__, name)
