"""Graphs as files: ``sg.save_graph`` and ``sg.load_graph``.

A graph goes in as its text (``staticgrad.graph.text``) and comes out of it (``staticgrad.saving.parser``); the form of
the files is that of ``staticgrad.runtime.files.graphfile``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from staticgrad.base import files, nests
from staticgrad.base.errors import FormatError, GraphError, StaticGradError
from staticgrad.base.types import Shape, bind_size, symbols_of
from staticgrad.graph.graph import Graph, GraphEntry, Node, Tensor, get_default_graph
from staticgrad.graph.text import LISTED, ArraysBeside, print_saved
from staticgrad.runtime.files import graphfile
from staticgrad.saving.parser import fits_declared, parse_saved

if TYPE_CHECKING:
    from staticgrad.runtime.session.executable import Executable
    from staticgrad.runtime.session.session import Session

LARGEST_WITHIN = 256  # elements of an array that stays within a text


def save_graph(
    path: str | os.PathLike[str],
    graph: Graph | None = None,
    *,
    entries: Mapping[str, Executable | tuple[Any, Any]] | None = None,
    session: Session | None = None,
) -> None:
    """Write a graph to a file, which ``sg.load_graph`` reads: a text (``.sgt``, for example), or one binary file if the
    path ends in ``.sgb``.

    A text is for people and for version control. Constants and first values of more than 256 elements are not in it:
    they lie in a safetensors file beside it, which is named after it and has to stay in its folder. A binary file is a
    safetensors file that has the text too. Files are replaced whole, or not at all.

    Args:
        graph: default: the session's, or else the current one.
        entries: what of the graph is compiled under which name: an executable, or fetches and feeds as ``sess.compile``
            takes them. ``staticgrad compile`` exports them. Default: the graph's own, ``graph.entries``.
        session: whose state is saved with the graph: variables, slots of optimizers, random state. ``sess.restore`` of
            the path takes it over. Default: none is.

    Raises:
        GraphError: Python functions are a part of the graph (``sg.py_call``, hooks, initializers of one's own), or an
            entry is none of this graph.
        FormatError: the path is empty or names what is no regular file.
        OSError: the file or its folder cannot be written.

    Example:
        >>> x = sg.placeholder((None, 2), name="x")
        >>> w = sg.Variable([[1.0], [10.0]], name="w")
        >>> y = x @ w
        >>> sess = sg.Session()
        >>> sess.set(w, [[2.0], [20.0]])
        >>> sg.save_graph("net.sgt", entries={"predict": (y, [x])}, session=sess)
        >>> graph = sg.load_graph("net.sgt")
        >>> str(graph) == str(sg.load_graph("net.sgt"))
        True
        >>> fetches, feeds = graph.entries["predict"]
        >>> other = sg.Session(graph)
        >>> other.restore("net.sgt")
        Unmatched(missing_keys=[], unexpected_keys=[])
        >>> other.compile(fetches, feeds)([[1.0, 2.0]])
        array([[42.]], dtype=float32)
    """
    place = files.path_of(path)
    if graph is None:
        graph = get_default_graph() if session is None else session.graph
    if not isinstance(graph, Graph):
        raise GraphError(f"save_graph: expected a graph, actual {graph!r}")
    if session is not None and session.graph is not graph:
        raise GraphError("save_graph: expected a session of the graph that is saved, actual one of another graph")
    named: Mapping[str, Any] = graph.entries if entries is None else entries
    known = {name: _entry(graph, name, value) for name, value in named.items()}
    beside = ArraysBeside(LISTED if place.endswith(graphfile.BINARY) else LARGEST_WITHIN, {})
    text = print_saved(graph, known, beside)
    state = None
    if session is not None:
        from staticgrad.runtime.files import checkpoint

        session.store.check_open()
        state = checkpoint.copied(session.store)
    graphfile.write(place, graphfile.GraphFile(text, beside.arrays, state))


def load_graph(path: str | os.PathLike[str]) -> Graph:
    """The graph in a file that ``sg.save_graph`` wrote: names, ops, attributes, sizes, what requires a gradient and
    random places are the same, and so is what sessions with one seed compute.

    ``graph.entries`` has what is compiled under which name, as arguments of ``sess.compile``; ``graph.variables`` has
    the variables by name. A text of ``graph.text(full=True)`` is read, too. Nothing in a file is executed.

    Raises:
        FormatError: the file is damaged, foreign or of a newer version.
        OSError: the file, or the file of arrays beside it, can't be read.

    Example:
        >>> w = sg.Variable([1.0, 2.0], name="w")
        >>> loss = sg.sum(w**2)
        >>> sg.save_graph("loss.sgb", entries={"loss": (loss, [])})
        >>> graph = sg.load_graph("loss.sgb")
        >>> sg.Session(graph).run(graph.entries["loss"].fetches)
        array(5., dtype=float32)
    """
    place = files.path_of(path)
    return graph_of(place, graphfile.read(place))


def graph_of(path: str | os.PathLike[str], file: graphfile.GraphFile) -> Graph:
    """The graph of a file that was read; ``path`` is for messages.

    Raises:
        FormatError: its text is damaged.
    """
    try:
        return parse_saved(file.text, file.arrays)
    except FormatError as error:
        raise FormatError(f"{os.fspath(path)}: {error}") from error.__cause__


# -- entries ----------------------------------------------------------------------------------------------------------


def _entry(graph: Graph, name: Any, value: Any) -> GraphEntry:
    """An entry as it is kept.

    Raises:
        GraphError: it is none of this graph.
    """
    if not isinstance(name, str):
        raise GraphError(f"save_graph: expected texts as names of entries, actual {name!r}")
    what = f"save_graph: entry {name!r}"
    if isinstance(value, tuple) and len(value) == 2:
        fetches, given = value
    elif hasattr(value, "fetches") and hasattr(value, "_programs"):
        fetches, given = value.fetches, _shapes_of(value)
    else:
        raise GraphError(f"{what}: expected an executable or (fetches, feeds), actual {value!r}")
    if isinstance(given, Tensor):
        given = [given]
    feeds: dict[Tensor, Shape] = {}
    for x in [*nests.flatten(fetches), *given]:
        if not isinstance(x, Tensor | Node):
            raise GraphError(f"{what}: expected tensors and ops, actual {x!r}")
        if x.graph is not graph:
            raise GraphError(f"{what}: {x.graph.whereabouts(x, 'the one that is saved')}")
    for x in given:
        if not isinstance(x, Tensor) or x in feeds:
            raise GraphError(f"{what}: expected tensors to be fed once each, actual {x!r}")
        feeds[x] = _fed_shape(what, x, given[x] if isinstance(given, Mapping) else None)
    return GraphEntry(fetches, feeds)


def _fed_shape(what: str, x: Tensor, shape: Any) -> Shape:
    """The shape of a feed: the declared one, with numbers in the place of open sizes that ``shape`` gives."""
    if shape is None:
        return x.shape
    given: Sequence[Any] = (shape,) if isinstance(shape, int) else tuple(shape)
    if len(given) == x.ndim:
        given = tuple(size if one is None else one for size, one in zip(x.shape, given, strict=True))
    if not fits_declared(tuple(given), x.shape):
        raise GraphError(f"{what}: {x.name!r} of type {x.type} cannot be fed the shape {tuple(given)}")
    return tuple(given)


def _shapes_of(executable: Any) -> dict[Tensor, Shape]:
    """The shapes that an executable is fed: sizes that it was compiled for are numbers, others are open."""
    latest = executable._programs.latest_shapes
    fixed = executable._programs.fixed
    return {
        x: tuple(
            actual if latest is not None and fixed.issuperset(symbols_of((size,))) else size
            for size, actual in zip(x.shape, latest[place] if latest is not None else x.shape, strict=True)
        )
        for place, x in enumerate(executable.feeds)
    }


def whole(graph: Graph) -> GraphEntry:
    """Every result of a graph that nothing reads, and every effect, from all its placeholders."""
    feeds = {y: y.shape for node in graph.nodes if node.op.name == "placeholder" for y in node.outputs}
    used = {x for node in graph.nodes for x in node.inputs}
    results = [y for node in graph.nodes for y in node.outputs if y not in used and y not in feeds]
    return GraphEntry([*results, *(node for node in graph.nodes if node.op.effect)], feeds)


def bound(entries: Mapping[str, GraphEntry], numbers: Mapping[str, int]) -> dict[str, GraphEntry]:
    """The entries with numbers in the place of open sizes, which go by name.

    Raises:
        StaticGradError: a size stays open, or there is none of a name.
    """
    symbols = {s for entry in entries.values() for shape in entry.feeds.values() for s in symbols_of(shape)}
    names = {symbol.name for symbol in symbols}
    if names != numbers.keys():
        unknown = ", ".join(map(repr, sorted(numbers.keys() - names)))
        still_open = ", ".join(map(repr, sorted(names - numbers.keys())))
        actual = f"none for {still_open}" if still_open else f"one for {unknown}, which no feed has"
        raise StaticGradError(f"expected a number for each open size of the feeds, actual {actual}")
    known = {symbol: numbers[symbol.name] for symbol in symbols}
    return {
        name: GraphEntry(fetches, {x: tuple(bind_size(size, known) for size in shape) for x, shape in feeds.items()})
        for name, (fetches, feeds) in entries.items()
    }
