"""Modes: the ways in which programs are run, counted as planners choose them, for whoever asks what has been tried.

Input: what a planner decided, as the plan that it gives or as a sentence. Output: how often each was chosen in
this process, on each instruction set. A mode of a plan is named after the class and the attribute that say
it, such as ``Tiling.far: yes`` or ``NestPlan.panel: none``. Attributes say one that are true or false, there or not,
empty or filled, and those named here that count pieces of what need not be cut, or measure what need not be there;
other numbers do not.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from staticgrad.base.extents import highest
from staticgrad.compiler.machine.isa import ISA

taken: defaultdict[str, Counter[str]] = defaultdict(Counter)  # modes, by the instruction set of the program
WORDS = {
    "bool": ("no", "yes"),
    "None": ("none", "some"),
    "sized": ("empty", "filled"),
    "count": ("one", "several"),
    "amount": ("zero", "more"),
}
SIZED = ("dict[", "frozenset[", "set[")
COUNTS = {"blocks", "copies", "chunks", "group", "groups", "parts", "passes", "phases", "strips", "terms", "together"}
AMOUNTS = {"buffer", "left", "right"}
PLANS = "staticgrad.compiler.plans."  # where plans are made; what is planned is from elsewhere
GIVEN = {"Facts", "Access", "Machine", "ProductCosts"}  # of what is planned, and for what


_isa = ""  # of the program that is compiled now, or was last


def count_on(isa: ISA) -> None:
    """Count what is chosen from now on as chosen on this instruction set."""
    global _isa
    _isa = isa.name


def took(mode: str, is_so: bool = True) -> None:
    """Count that a planner has chosen this, if it ``is_so``."""
    if is_so:
        taken[_isa][mode] += 1


def is_plan(kind: type) -> bool:
    """True if values of this class are plans, or parts of plans."""
    return dataclasses.is_dataclass(kind) and kind.__module__.startswith(PLANS) and kind.__name__ not in GIVEN


def took_plan(plan: Any) -> None:
    """Count all that a plan says, and the plans inside of it."""
    taken[_isa].update(_chosen(plan))


def modes_of(kind: type) -> set[str]:
    """Every mode that a plan of this class can say by itself."""
    return {f"{kind.__name__}.{name}: {word}" for name, what in _choices(kind).items() for word in WORDS[what]}


@functools.cache
def _choices(kind: type) -> dict[str, str]:
    """The attributes that say a mode, and how."""
    declared = {field.name: str(field.type) for field in dataclasses.fields(kind)}
    for base in kind.__mro__:
        for name, value in vars(base).items():
            if isinstance(value, property) and value.fget is not None:
                declared.setdefault(name, str(value.fget.__annotations__.get("return", "")))
    found = {}
    for name, type_ in declared.items():
        if type_ == "bool":
            found[name] = type_
        elif name in COUNTS:
            found[name] = "count"
        elif name in AMOUNTS:
            found[name] = "amount"
        elif type_.endswith("| None"):
            found[name] = "None"
        elif type_.startswith(SIZED):
            found[name] = "sized"
    return found


def _chosen(plan: Any) -> Iterator[str]:
    kind: type = type(plan)
    name = kind.__name__
    yield name
    for attribute, what in _choices(kind).items():
        value = getattr(plan, attribute)
        yield f"{name}.{attribute}: {WORDS[what][_place(what, value)]}"
    for field in dataclasses.fields(plan):
        value = getattr(plan, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if is_plan(type(part)):
                yield from _chosen(part)


def _place(what: str, value: Any) -> bool:
    """The one of the two words of a mode that applies: False for the first, True for the second."""
    if what in ("amount", "count", "sized"):
        count = value if isinstance(value, int) else len(value)
        return bool(highest(count) > (what == "count"))
    return value is not None if what == "None" else bool(value)
