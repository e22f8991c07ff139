"""Modules and variables that a cell, or a turn of a loop, has declared before in the same graph.

A name that was not given goes to the first of them. The second one's variables are called otherwise, so a checkpoint
holds both, and a program that declares one takes the values of the first, which nothing may have trained. What ran
before is known from the lines that were running down to the statement of a module or cell, and from that one's code,
which is compiled anew when it runs again; several layers that one execution declares are meant to be several. In a
loop, a program that was made in between and a first module that is gone tell that the second took its place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import TYPE_CHECKING

from staticgrad.base.errors import BEGIN_ANEW, DuplicateLayerWarning, SourceLine, is_inside, ran_before, warn
from staticgrad.base.frozen import frozen

if TYPE_CHECKING:
    from staticgrad.graph.graph import Graph

_WITHOUT_LINES = frozenset({"<stdin>", "<string>"})  # whose statements are all called line 1
_SHOWN = 2  # names in a message


@frozen
class Statement:
    """The lines that run when something is declared, from the innermost to that of the module or cell, and the code of
    that; None where no module is running."""

    lines: tuple[tuple[str, int], ...]
    code: CodeType | None


def running() -> Statement:
    """The statement that is running now, without the frames of this package."""
    lines: list[tuple[str, int]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not is_inside(code.co_filename):
            lines.append((code.co_filename, frame.f_lineno))
            if code.co_name == "<module>":
                return Statement(tuple(lines), code)
        frame = frame.f_back
    return Statement(tuple(lines), None)


@frozen
class Root:
    """A module that no other holds, or a variable that no module holds, when its names are settled."""

    kind: str
    members: frozenset[tuple[str, object]]  # path and type of each variable
    names: tuple[str, ...]
    source: SourceLine | None
    statement: Statement
    is_gone: Callable[[], bool]  # whether no user's program can reach it any more

    def replaces(self, before: Root, ran_between: bool) -> bool:
        """True if ``before`` is what the same lines declared when they ran before, or an earlier form of the cell."""
        lines, code = self.statement.lines, self.statement.code
        earlier, first = before.statement.lines, before.statement.code
        if lines == earlier and lines:
            ran_anew = code is not first and lines[-1][0] not in _WITHOUT_LINES
            return ran_anew or (ran_between and before.is_gone())
        at_cell = len(lines) == len(earlier) == 1
        return at_cell and code is not first and bool(ran_before(before.source, self.source)) and before.is_gone()


@frozen
class Pair:
    """Two roots of one kind and with members alike, the one settled after the other."""

    before: Root
    now: Root
    ran_between: bool  # whether a session made a program in between


def note(graph: Graph, roots: Sequence[Root]) -> None:
    """Take note of what has settled names now, in order of declaration, and of what it may repeat."""
    for root in roots:
        key = root.kind, root.members
        known = graph.roots.get(key)
        if known is not None:
            graph.repeated.append(Pair(known[0], root, graph.programs > known[1]))
        graph.roots[key] = root, graph.programs


def check_repeated(graph: Graph) -> None:
    """Warn, once, of what takes the place of something that was declared before."""
    found = [pair for pair in graph.repeated if pair.now.replaces(pair.before, pair.ran_between)]
    graph.repeated.clear()
    if found:
        warn(DuplicateLayerWarning, _message(found[0].before, found[0].now, len(found) - 1))


def _message(before: Root, now: Root, more: int) -> str:
    what = ran_before(before.source, now.source)
    others = f", and so were {more} more" if more else ""
    return (
        f"{now.kind}, made at {now.source}, was made before in this graph ({what}){others}. The first one stays there"
        f" and in checkpoints, as {_listed(before.names)}, and this one is {_listed(now.names)}: where one is declared,"
        f" such a file restores the first one's values. {BEGIN_ANEW}; in a loop, give each a graph, or hold them all in"
        " one module"
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join([*map(repr, names[:_SHOWN]), *("…" for _ in names[_SHOWN : _SHOWN + 1])])
