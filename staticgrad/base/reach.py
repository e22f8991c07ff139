"""``reach``: what can be got to from somewhere, step by step: nodes through operands, instructions, memories."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

H = TypeVar("H", bound=Hashable)


def reach(starts: Iterable[H], onward: Callable[[H], Iterable[H]]) -> set[H]:
    """``starts`` and all that ``onward`` leads to from them; it is called once for each."""
    stack = list(starts)
    seen = set(stack)
    while stack:
        for item in onward(stack.pop()):
            if item not in seen:
                seen.add(item)
                stack.append(item)
    return seen
