"""The modes of the emitter's planners: which the sources declare, which the tests of a run have taken."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import staticgrad.compiler.emit
from staticgrad.compiler.emit import modes

COMPILER = Path(staticgrad.compiler.emit.__path__[0]).parent
RAREST = 4  # of so many a summary says the count
FEW = 10  # so many that were never taken are always named


def _names(path: Path) -> list[str]:
    """The modes that calls of ``took`` in a file name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        function = call.func
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        if name == "took":
            assert call.args, f"{path}:{call.lineno}: took() without a mode"
            found += [text.value for text in ast.walk(call.args[0]) if isinstance(text, ast.Constant)]
    return found


@functools.cache
def declared() -> frozenset[str]:
    """Every mode that the compiler's sources name."""
    return frozenset(name for path in COMPILER.rglob("*.py") for name in _names(path) if isinstance(name, str))


def taken() -> Counter[str]:
    """How often each mode has been taken in this process."""
    return Counter(modes.taken)


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
