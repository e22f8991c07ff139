"""Parts of a program: definitions come in, texts of LLVM modules of about equal length go out, compiled side by side.

Each function and each global is in one part. What another part refers to becomes hidden: the linker joins it, no
program outside of the image sees it. How definitions are dealt out depends on them alone, so that a program is the same
wherever it is made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from staticgrad.base.frozen import frozen

PART = 150_000  # characters at least: about a tenth of a second of machine code
MOST_PARTS = 8


@frozen
class Definition:
    """A function or a global as LLVM text: ``begin``, its linkage, ``rest``. ``declaration`` is what other modules say
    of it, ``uses`` names what it refers to."""

    begin: str
    is_internal: bool
    rest: str
    declaration: str
    uses: Collection[str] = ()

    def text(self, *, is_shared: bool = False) -> str:
        """The definition, with a line's end; ``is_shared`` where other modules refer to it."""
        linkage = "hidden " if is_shared else "internal "
        return f"{self.begin}{linkage if self.is_internal else ''}{self.rest}\n"


def parts(
    globals_: Mapping[str, Definition],
    declarations: Mapping[str, str],
    functions: Mapping[str, Definition],
    groups: Sequence[tuple[Collection[str], int]],
) -> tuple[str, ...]:
    """The texts of modules in which these lie, by name: those of each group of functions in as many as it says.
    ``declarations`` are of functions that lie in none of them."""
    defined = {**globals_, **functions}
    homes = _homes(globals_, functions, groups)
    count = sum(number for _, number in groups)
    shared = {name for user, d in functions.items() for name in d.uses if homes.get(name) != homes[user]}
    said = {
        **{name: definition.declaration for name, definition in globals_.items()},
        **declarations,
        **{name: definition.declaration for name, definition in functions.items()},
    }

    def part(number: int) -> str:
        own = {name: definition for name, definition in defined.items() if homes[name] == number}
        used = {name for definition in own.values() for name in definition.uses}
        declared = [line for name, line in said.items() if name in used and name not in own]
        return "".join([*declared, *(d.text(is_shared=name in shared) for name, d in own.items())])

    return tuple(map(part, range(count)))


def _homes(
    globals_: Collection[str], functions: Mapping[str, Definition], groups: Sequence[tuple[Collection[str], int]]
) -> dict[str, int]:
    """The part of each definition: the longest functions of a group first, each where there is least; globals where the
    first function refers to them."""
    homes: dict[str, int] = {}
    first = 0
    for names, count in groups:
        lengths = [0] * count
        length_of = {name: len(definition.text()) for name, definition in functions.items() if name in names}
        for name in sorted(length_of, key=lambda name: -length_of[name]):
            home = lengths.index(min(lengths))
            homes[name] = first + home
            lengths[home] += length_of[name]
        first += count
    for name in globals_:
        homes[name] = next((homes[user] for user, definition in functions.items() if name in definition.uses), 0)
    return homes
