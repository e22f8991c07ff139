"""Cutting a module: LLVM text comes in, texts of about equal length go out that are compiled side by side.

Each function and each global is in one part. What another part refers to becomes hidden: the linker joins it, nobody
outside of the image sees it. How a text is cut depends on it alone, so that a program is the same wherever it is made.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PART = 150_000  # characters at least: about a tenth of a second of machine code
MOST_PARTS = 8
_ITEM = re.compile(
    r"""\n*(?: @(?P<global>[\w.$-]+)\ [^\n]*\n
         | declare\ [^@\n]*@(?P<elsewhere>[\w.$-]+)[^\n]*\n
         | define\ [^@\n]*@(?P<function>[\w.$-]+)[^\n]*\n (?:[^}\n][^\n]*\n)* }\n )""",
    re.VERBOSE,
)
_NAME = re.compile(r"@([\w.$-]+)")


@dataclass(frozen=True, slots=True)
class Item:
    """A global, a function, or the declaration of one that lies elsewhere, as ``kind`` says."""

    kind: str
    name: str
    text: str

    def references(self) -> set[str]:
        """What it refers to."""
        return {*_NAME.findall(self.text)} - {self.name}

    def hidden(self) -> str:
        """The definition where other parts refer to it."""
        return self.text.replace("internal ", "hidden ", 1)

    def declared(self) -> str:
        """What those parts say of it. Pointers are of any type: no bytes at all stand for any global."""
        match self.kind:
            case "global":
                return f"@{self.name} = external hidden global [0 x i8]\n"
            case "function":
                head = self.hidden().strip().partition("\n")[0].partition(" #")[0]
                return head.replace("define ", "declare ", 1).rstrip(" {") + "\n"
        return self.text


def parts(text: str) -> tuple[str, ...]:
    """The parts of a module: itself if it is short, or holds something that the emitters do not write."""
    count = min(MOST_PARTS, len(text) // PART)
    items = _items(text) if count > 1 else None
    if items is None:
        return (text,)
    references = {name: item.references() for name, item in items.items()}
    homes = _homes(items, references, count)
    shared = {name for user, used in references.items() for name in used if homes.get(name) != homes[user]}
    return tuple(_part(number, items, references, homes, shared) for number in range(count))


def _items(text: str) -> dict[str, Item] | None:
    """The items of a module by name, in order; None if there is anything else."""
    items: dict[str, Item] = {}
    at = 0
    while at < len(text):
        match = _ITEM.match(text, at)
        if match is None:
            return None
        kind = str(match.lastgroup)
        items[match[kind]] = Item(kind, match[kind], match[0])
        at = match.end()
    return items


def _homes(items: dict[str, Item], references: dict[str, set[str]], count: int) -> dict[str, int]:
    """The part of each item that is defined: the longest functions first, each where there is least; globals where the
    first function refers to them."""
    lengths = [0] * count
    homes: dict[str, int] = {}
    functions = [item for item in items.values() if item.kind == "function"]
    for item in sorted(functions, key=lambda item: -len(item.text)):
        homes[item.name] = lengths.index(min(lengths))
        lengths[homes[item.name]] += len(item.text)
    for user in functions:
        for name in references[user.name]:
            if name in items and items[name].kind == "global":
                homes.setdefault(name, homes[user.name])
    return {name: homes.get(name, 0) for name, item in items.items() if item.kind != "elsewhere"}


def _part(
    number: int, items: dict[str, Item], references: dict[str, set[str]], homes: dict[str, int], shared: set[str]
) -> str:
    """The text of one part: what is at home there, and declarations of what that refers to."""
    own = [item for item in items.values() if homes.get(item.name) == number]
    used = {name for item in own for name in references[item.name] if homes.get(name) != number}
    declared = [item.declared() for item in items.values() if item.name in used]
    return "".join([*declared, *(item.hidden() if item.name in shared else item.text for item in own)])
