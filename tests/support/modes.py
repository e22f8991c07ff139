"""The modes of planners: what the sources declare, as sentences and as plans, and what the tests of a run took."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import staticgrad.compiler
from staticgrad.compiler.machine import modes
from staticgrad.compiler.plans import convolution
from staticgrad.compiler.plans.contraction.plan import ContractionPlan
from staticgrad.compiler.plans.convolution.plan import ConvolutionPlan
from staticgrad.compiler.plans.nest.plan import NestPlan

COMPILER = Path(staticgrad.compiler.__path__[0])
IMPOSSIBLE = {
    "NestPlan.stored: empty": "what stores nothing is no nest",
    "NestChunks.chunks: one": "one chunk is not shared",
    "Sweep.members: empty": "a sweep computes something",
}
_MASKS = "its vectors are moved by masks, which it lacks or has for some elements alone"
_PREDICATES = "a remainder is a vector of which some lanes are off, where every instruction has masks"
ELSEWHERE = {  # modes of other instruction sets than this one
    "generic": {
        **dict.fromkeys(("SmallPlaneTile", "SmallPlaneTile.phases: one", "SmallPlaneTile.phases: several"), _MASKS),
        **dict.fromkeys(("Tiling.exact: yes", "Tiling.masked: yes"), _MASKS),
        **dict.fromkeys(("Span.masked: yes", "Tiling.folded: yes"), _PREDICATES),
        "sort: by partitions": "it needs an instruction that brings the lanes of a mask side by side",
    },
    "avx2": {
        **dict.fromkeys(("Span.masked: yes", "Tiling.folded: yes", "Tiling.masked: yes"), _PREDICATES),
    },
    "avx512": {"Tiling.exact: yes": "a last vector is masked", "Tiling.masked: no": "a last vector is masked"},
}
RAREST = 4  # of so many a summary says the count
FEW = 10  # so many that were never taken are always named


def _named(path: Path) -> Iterator[str]:
    """The modes that calls of ``took`` in a file name."""
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "took":
            (mode, *_) = call.args
            assert isinstance(mode, ast.Constant), f"{path}:{call.lineno}: a mode that is no literal"
            assert isinstance(mode.value, str)
            yield mode.value


def _plans() -> Iterator[type]:
    """The classes of what emitters hand to ``took_plan``."""
    yield from (NestPlan, ContractionPlan)
    for _, name, _ in pkgutil.iter_modules(convolution.__path__, f"{convolution.__name__}."):
        for value in vars(importlib.import_module(name)).values():
            if isinstance(value, type) and dataclasses.is_dataclass(value) and issubclass(value, ConvolutionPlan):
                yield value


def _parts(kind: type) -> Iterator[type]:
    """The classes of plans that the fields of this one name."""
    known = vars(sys.modules[kind.__module__])
    for name in {name for field in dataclasses.fields(kind) for name in re.findall(r"\w+", str(field.type))}:
        for value in get_args(known.get(name)) or (known.get(name),):
            if isinstance(value, type) and modes.is_plan(value):
                yield value


@functools.cache
def declared() -> frozenset[str]:
    """Every mode that the compiler's sources name or a plan can say, but impossible ones."""
    found = {name for path in COMPILER.rglob("*.py") for name in _named(path)}
    waiting, seen = list(_plans()), set[type]()
    while waiting:
        kind = waiting.pop()
        if kind not in seen:
            seen.add(kind)
            found |= {kind.__name__, *modes.modes_of(kind)}
            waiting += _parts(kind)
    assert found >= IMPOSSIBLE.keys(), "a mode that nobody declares any more"
    return frozenset(found - IMPOSSIBLE.keys())


def declared_on(isa: str) -> frozenset[str]:
    """Every mode that there is on an instruction set."""
    return declared() - elsewhere(isa)


def elsewhere(isa: str) -> frozenset[str]:
    """The modes that an instruction set is excused from."""
    return frozenset(ELSEWHERE.get(isa, {}))


def taken(isa: str | None = None) -> Counter[str]:
    """How often each mode has been taken in this process, in all or on an instruction set."""
    return sum(modes.taken.values(), Counter()) if isa is None else Counter(modes.taken[isa])


def summary(counts: Mapping[str, int], every: bool = False) -> list[str]:
    """What was taken, in a line; which never were, if they are few; with ``every`` a table, the rarest first."""
    known = sorted(declared(), key=lambda name: (counts.get(name, 0), name))
    reached = [name for name in known if counts.get(name, 0)]
    missing = [name for name in known if not counts.get(name, 0)]
    rarest = ", ".join(f"{name} {counts[name]}" for name in reached[:RAREST])
    lines = [f"modes: {len(reached)} of {len(known)} taken; least often {rarest or 'none'}"]
    if missing and (every or len(missing) <= FEW):
        lines.append(f"modes never taken: {', '.join(missing)}")
    if every:
        lines += [f"{counts.get(name, 0):>12,}  {name}" for name in known]
    return lines
