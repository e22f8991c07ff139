"""Draws the programs and scripts of the retention oracle and writes PyTorch's answers: ``make oracle``.

Nothing here runs in tests: they replay ``tests/data/oracle/scripts.jsonl`` without PyTorch. Scripts whose answers are
not finite, or that rounding errors alone would change (ties, cancellation), are drawn again: each is
answered a second time with all values changed in their eleventh digit.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from oracle.answers import answers
from oracle.draw import Rejected, draw, kind_of
from oracle.scripts import DATA, Action, Assign, Backward, Forward, Recipe, Script, write

LARGEST_GRADIENT = 1e4
NUDGE = 1e-11
TOLERANCE = 1e-9


def nudged(recipe: Recipe, actions: list[Action], rng: np.random.Generator) -> tuple[Recipe, list[Action]]:
    """The same program and script on values that differ in their eleventh digit."""

    def nudge(value: Any) -> Any:
        if value is None:
            return None
        array = np.asarray(value, np.float64)
        return (array * (1 + NUDGE * rng.uniform(-1, 1, array.shape))).tolist()

    leaves = tuple(replace(leaf, value=nudge(leaf.value)) for leaf in recipe.leaves)
    moved: list[Action] = []
    for action in actions:
        if isinstance(action, Forward):
            moved.append(replace(action, feeds=tuple(map(nudge, action.feeds))))
        elif isinstance(action, Backward) and action.grads is not None:
            moved.append(replace(action, grads=tuple(map(nudge, action.grads))))
        elif isinstance(action, Assign):
            moved.append(replace(action, value=nudge(action.value)))
        else:
            moved.append(action)
    return Recipe(leaves, recipe.steps), moved


def arrays_of(answer: Any) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(answer, np.ndarray):
        yield answer
    elif isinstance(answer, (list, tuple)):
        for item in answer:
            yield from arrays_of(item)


def shape_of(answer: Any) -> Any:
    """An answer with shapes in the place of arrays."""
    if isinstance(answer, np.ndarray):
        return answer.shape
    return [shape_of(item) for item in answer] if isinstance(answer, (list, tuple)) else answer


def robust(first: list[Any], second: list[Any]) -> bool:
    """Whether the answers are finite, and those to nudged values are the same up to what the nudge explains."""
    if shape_of(first) != shape_of(second):
        return False
    for a, b in zip(arrays_of(first), arrays_of(second), strict=True):
        if a.size and not np.abs(a).max() < LARGEST_GRADIENT:
            return False
        if a.size and not np.abs(a - b).max() <= TOLERANCE * max(np.abs(a).max(), 1e-3):
            return False
    return True


def script(kind: str, number: int) -> Script:
    """The first good draw for this number."""
    for attempt in range(1000):
        try:
            recipe, actions = draw(kind, 1000 * number + attempt)
        except Rejected:
            continue
        found = answers(recipe, actions)
        again = answers(*nudged(recipe, actions, np.random.default_rng(number)))
        if not any(isinstance(a, list) and a[:1] == ["ok"] for a in found) or not robust(found, again):
            continue
        return Script(f"{kind} {number}", recipe, tuple(actions), tuple(found))
    raise RuntimeError(f"no good draw of {kind} {number}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=396, help="how many scripts to draw")
    parser.add_argument("--first", type=int, default=0, help="number of the first: others than those that are kept")
    parser.add_argument("--output", type=Path, default=DATA, help="where to write them")
    asked = parser.parse_args()
    numbers = range(asked.first, asked.first + asked.count)
    made = [script(kind_of(number), number) for number in numbers]
    write(made, asked.output)
    backwards = Counter(
        answer[1] if answer[0] == "refused" else "ok"
        for one in made
        for action, answer in zip(one.actions, one.answers, strict=True)
        if isinstance(action, Backward)
    )
    ops = Counter(step.op for one in made for step in one.recipe.steps)
    print(f"{len(made)} scripts, {sum(backwards.values())} backwards {dict(backwards)}")
    print(f"{len(ops)} ops: {', '.join(f'{op} {n}' for op, n in ops.most_common())}")
    print(f"{asked.output.stat().st_size:,} bytes in {asked.output}")


if __name__ == "__main__":
    main()
