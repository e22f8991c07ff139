"""Names of variables that their users have not named: the paths of the modules that hold them.

    name ::= path                      in the outermost module, its root, if no other variable has that name
           | kind ["_" n] "." path     of the variables of a root that shares a path with something else
           | base ["_" n]              of a variable in no module; the base is ``variable``

A path is known when modules have been put into each other, which is after their variables were declared. So these names
are worked out anew, from the modules as they are then, when one is asked for. They are settled when something keeps a
name: a program, a session, a slot of an optimizer, a gradient, a text. Numbers follow the order of declaration;
``Graph.origins`` tells of the names that have one, or would have one among others.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections import Counter
from collections.abc import Callable, Container, Iterable
from typing import Any, NamedTuple, Self

from staticgrad.base.errors import FormatError, GraphError, SourceLine, user_source
from staticgrad.base.frozen import frozen
from staticgrad.graph import reruns
from staticgrad.graph.graph import Derivation, Graph, Node, Tensor, provide

WITH_KEYS = frozenset({"variable", "assign", "latest_value"})  # ops whose attributes hold a variable's name


class Unmatched(NamedTuple):
    """The names that took no part when values were loaded by name: those without a value, and those without a place."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def match(
    what: str,
    places: tuple[str, str],
    wanted: Iterable[str],
    found: Iterable[str],
    allowed: tuple[bool, bool],
    advise: Callable[[Unmatched], str] = lambda _: "",
) -> Unmatched:
    """Compare the names that are wanted with those of the values that were found.

    Args:
        what: begins the message of an error.
        places: where values were looked for, and where their places are.
        allowed: whether wanted names may be missing, and whether others may be found.
        advise: what to write where names are refused, after what they are.

    Raises:
        FormatError: there are names that may not be, or no two names are the same.
    """
    names, others = dict.fromkeys(wanted), dict.fromkeys(found)
    rest = Unmatched([n for n in names if n not in others], [n for n in others if n not in names])
    refused = any(some and not may for some, may in zip(rest, allowed, strict=True))
    if not refused and (len(rest.missing_keys) < len(names) or not (names or others)):
        return rest
    source, target = places
    problem = f"other variables than the {target}'s" if refused else f"none of the {target}'s variables"
    texts = (f"missing in the {source}", f"not in the {target}")
    parts = [f"\n  {text}: {', '.join(map(repr, some))}" for text, some in zip(texts, rest, strict=True) if some]
    if refused:
        parts.append("\nstrict=False passes them over")
    parts.append(advise(rest))
    raise FormatError(f"{what}: {problem}{''.join(parts)}")


class Holder:
    """The base of modules: an object that holds variables and other holders as attributes."""

    __slots__ = ("__weakref__", "_holder_place")
    _holder_place: Place

    def __new__(cls, *args: Any, **options: Any) -> Self:
        if (args or options) and cls._without_initializer():
            given = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in options.items())])
            raise TypeError(f"{cls.__name__}() takes no arguments, actual {given}")
        holder = super().__new__(cls)
        object.__setattr__(holder, "_holder_place", Place(holder))
        return holder

    @classmethod
    def _without_initializer(cls) -> bool:
        """No class of the user's or layer has an initializer, only what all holders begin with."""
        first = next(base for base in cls.__mro__ if "__init__" in vars(base))
        return not issubclass(first, Holder) or Holder in first.__bases__

    def __setattr__(self, name: str, value: Any) -> None:
        before = vars(self).get(name)
        super().__setattr__(name, value)
        if before is not value and vars(self).get(name) is value:  # not what a property of this name keeps elsewhere
            self._release(before, name)
            _note_replaced(self, name, before, value)
            homes = _homes_of(value)
            if homes is not None:
                homes[:] = [*_lasting(homes), Home(self._holder_place, name)]
                note_change()

    def __delattr__(self, name: str) -> None:
        before = vars(self).get(name)
        super().__delattr__(name)
        self._release(before, name)

    def __copy__(self) -> Self:
        new = type(self).__new__(type(self))
        vars(new).update(vars(self))  # what holds it does not hold its copy
        return new

    def _release(self, value: object, name: str) -> None:
        homes = _homes_of(value)
        if homes:
            homes[:] = [home for home in homes if home != Home(self._holder_place, name)]
            note_change()


def variables_of(holder: Holder) -> list[Tensor]:
    """The variables of a holder and of all that it holds, each once."""
    found: dict[Tensor, None] = {}
    for value in vars(holder).values():
        if isinstance(value, Holder):
            found.update(dict.fromkeys(variables_of(value)))
        elif isinstance(value, Tensor) and value.op.op.name == "variable":
            found[value] = None
    return list(found)


def _note_replaced(holder: Holder, name: str, before: object, value: object) -> None:
    """Take note of a variable in whose place a tensor of a body is put (see ``put_back``)."""
    was_variable = isinstance(before, Tensor) and before.op.op.name == "variable"
    if was_variable and isinstance(value, Tensor) and isinstance(value.graph, Derivation):
        value.graph.replaced.append((holder, name, before))


def put_back(body: Derivation, what: str) -> None:
    """Put variables back in whose place a body has left tensors of its own, which have no value outside.

    Args:
        what: the function whose body it is.

    Raises:
        GraphError: there are such; the module is as it was before the body.
    """
    left = []
    for holder, name, variable in reversed(body.replaced):
        now = vars(holder).get(name)
        if isinstance(now, Tensor) and now.graph is body:
            setattr(holder, name, variable)
            left.append(f"{type(holder).__name__}.{name}")
    if left:
        raise GraphError(
            f"{what}: the function leaves a tensor of its own in the place of the variable {', '.join(left)}: it has no"
            " value outside. Set the variable again before the function returns, or compute with the tensor itself, as"
            " in sg.nn.linear(x, weight)"
        )


class Place:
    """The record of a holder, which outlives it: its kind, the user's line that made it, and what holds it. What it
    holds keeps this, not the holder itself."""

    __slots__ = ("__weakref__", "holder", "homes", "kind", "source", "statement")

    def __init__(self, holder: Holder) -> None:
        self.holder = weakref.ref(holder, _note_end)
        self.kind = type(holder).__name__
        self.source = user_source()
        self.statement = reruns.running()
        self.homes: list[Home] = []

    @property
    def held(self) -> list[Home]:
        """The homes of the holder; when it is gone, those that it had."""
        return self.homes if self.holder() is None else _lasting(self.homes)


@frozen
class Home:
    """The attribute by which a holder holds something, or held it when it was dropped."""

    place: Place
    name: str


def _lasting(homes: list[Home]) -> list[Home]:
    """The homes whose holders are there still."""
    return [home for home in homes if home.place.holder() is not None]


def way_out(homes: list[Home]) -> list[Home]:
    """The path from where something is held to the root: the attribute that holds it, the one that holds that module,
    …"""
    path: list[Home] = []
    seen: set[Place] = set()
    while homes and homes[0].place not in seen:  # modules might hold each other
        path.append(homes[0])
        place = homes[0].place
        seen.add(place)
        homes = place.held
    return path


def _homes_of(value: object) -> list[Home] | None:
    """The homes in which something is held; None for what has no name to be worked out."""
    if isinstance(value, Holder):
        return value._holder_place.homes
    if isinstance(value, Tensor):
        unnamed = value.op.graph.unsettled.get(value.op)
        return None if unnamed is None else unnamed.homes
    return None


class Unnamed:
    """A variable that its user has not named. ``base`` is what its name begins with while nothing holds it, ``origin``
    what its present name comes from."""

    __slots__ = ("base", "homes", "origin", "statement", "variable")

    def __init__(self, variable: Tensor, base: str) -> None:
        self.variable = variable
        self.base = base
        self.statement = reruns.running()
        self.homes: list[Home] = []
        self.origin: Origin | None = None

    def place(self) -> tuple[Place | None, str]:
        """The root that holds the variable, if one does, and the path in it. The root that held it last where all that
        did are gone: a graph may outlive the modules that declared it."""
        path = way_out(_lasting(self.homes) or self.homes)
        return path[-1].place if path else None, ".".join(home.name for home in reversed(path))


class Origin:
    """The source of a name that has a number or might have one: what stands before the number with what stands after
    it, and the line that was counted. Variables with one ``base`` are told apart by the order of their lines."""

    __slots__ = ("_text", "base", "source")

    def __init__(self, base: str, source: SourceLine | None) -> None:
        self.base = base
        self.source = source
        self._text: str | None = None

    @property
    def text(self) -> str:
        """The line as it is written, or its place where the text is not to be had."""
        if self._text is None:
            source = self.source
            self._text = "" if source is None else source.text or f"{source.file}:{source.line}"
        return self._text


# -- working out ------------------------------------------------------------------------------------------------------

_changes = [0]  # how often something was declared, or held by something else, that names may follow from


def note_change() -> None:
    """Work out names anew when they are next asked for."""
    _changes[0] += 1


def _note_end(_: weakref.ref[Holder]) -> None:
    note_change()


def register(graph: Graph, variable: Tensor, base: str) -> None:
    """Let the name of a variable be worked out."""
    graph._names.pop(variable.op._name)  # which it got only because a node has one
    graph.unsettled[variable.op] = Unnamed(variable, base)
    note_change()


def work_out(graph: Graph) -> dict[str, Tensor]:
    """Give the unnamed variables of a graph the names that follow from where they are held now.

    Returns:
        All variables of the graph by name, in order of declaration.
    """
    with graph._lock:
        known = graph.named
        if known is None or known[0] != _changes[0]:
            count = _changes[0]
            _rename(graph, _names(graph))
            variables = [*graph._variables.values(), *(one.variable for one in graph.unsettled.values())]
            variables.sort(key=lambda x: x.op.serial)
            known = graph.named = count, {x.op.attrs.key: x for x in variables}
        return known[1]


def settle(graph: Graph) -> None:
    """Let the names that the variables of a graph have now be theirs for good."""
    with graph._lock:
        if not graph.unsettled:
            return
        graph._variables = work_out(graph)
        for one in graph.unsettled.values():
            one.variable.op._name = graph.unique_name(one.variable.op.attrs.key)
            if one.origin is not None:
                graph.origins[one.variable.op.attrs.key] = one.origin
        reruns.note(graph, _settled(graph))
        graph.unsettled.clear()
        graph.named = None
        bases = Counter(origin.base for origin in graph.origins.values())
        for origin in graph.origins.values():
            if bases[origin.base] > 1:
                origin.text  # noqa: B018  read now: the file may be edited while the process runs


Members = list[tuple[str, Unnamed]]  # what a root holds, each with its path


def _roots(graph: Graph) -> tuple[dict[Place, Members], list[Unnamed]]:
    """The unnamed variables of a graph by their roots, and those that nothing holds."""
    roots: dict[Place, Members] = {}
    alone: list[Unnamed] = []
    for one in graph.unsettled.values():
        root, path = one.place()
        if root is None:
            alone.append(one)
        else:
            roots.setdefault(root, []).append((path, one))
    return roots, alone


def _settled(graph: Graph) -> list[reruns.Root]:
    """Modules that no other holds, and variables that no module holds, whose names are being settled."""
    roots, alone = _roots(graph)
    return [
        *(_root(place.kind, members, place.source, place.statement, place.holder) for place, members in roots.items()),
        *(_root(one.base, [("", one)], one.variable.source, one.statement) for one in alone),
    ]


def _root(
    kind: str,
    members: Members,
    source: SourceLine | None,
    statement: reruns.Statement,
    holder: Callable[[], object] = lambda: "the graph",
) -> reruns.Root:
    return reruns.Root(
        kind,
        frozenset((path, one.variable.type) for path, one in members),
        tuple(one.variable.op.attrs.key for _, one in members),
        source,
        statement,
        lambda: holder() is None,
    )


def _names(graph: Graph) -> dict[Node, str]:
    """The name of each unnamed variable; sets their origins."""
    roots, alone = _roots(graph)
    names = _Names(graph)
    claims = Counter(path for members in roots.values() for path, _ in members)
    numbered: list[tuple[Place, Members]] = []
    for root, members in roots.items():
        if all(claims[path] == 1 and path not in names.taken for path, _ in members):
            for path, one in members:
                names.give(one, path, None)
        else:
            numbered.append((root, members))
    for root, members in numbered:
        prefix = names.free(root.kind.lower(), [f".{path}" for path, _ in members])
        for path, one in members:
            names.give(one, f"{prefix}.{path}", Origin(f"{root.kind.lower()}.{path}", root.source))
    for one in alone:
        names.give(one, names.free(one.base, [""], graph._names), Origin(one.base, one.variable.source))
    return names.given


class _Names:
    """The names of a graph's variables while they are given."""

    def __init__(self, graph: Graph) -> None:
        self.taken = set(graph._variables)
        self.given: dict[Node, str] = {}
        self._numbers = Counter[str]()  # below which every number is taken

    def free(self, base: str, ends: list[str], others: Container[str] = ()) -> str:
        """The base, or the base with the least number, such that it is free with each of the ends."""
        while True:
            number = self._numbers[base]
            found = f"{base}_{number}" if number else base
            self._numbers[base] += 1
            if not any(found + end in self.taken or found + end in others for end in ends):
                return found

    def give(self, one: Unnamed, name: str, origin: Origin | None) -> None:
        if name in self.taken:  # two attributes whose paths are spelt alike
            name = self.free(name, [""])
        self.taken.add(name)
        self.given[one.variable.op] = name
        one.origin = origin


def _rename(graph: Graph, names: dict[Node, str]) -> None:
    """Write the names into the nodes of the variables and of what reads and writes them."""
    changed = {node.attrs.key: name for node, name in names.items() if node.attrs.key != name}
    if changed:
        for node in graph.nodes:
            if node.op.name in WITH_KEYS and node.attrs.key in changed:
                node.attrs = dataclasses.replace(node.attrs, key=changed[node.attrs.key])
    for node, name in names.items():
        node._name = name


provide(names=work_out, settle=settle)
