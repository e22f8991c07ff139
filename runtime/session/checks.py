"""Checks of what users give a session: options, feeds, and variables and gradients by tensor.

Input: arguments of the session's methods, and its graph. Output: the same with defaults filled in; the tensors that are
fed, with their shapes; the keys of variables and gradients in ``SessionState``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from staticgrad.base import config
from staticgrad.base.errors import FeedError, FetchError, GradientError, GraphError, StaticGradError
from staticgrad.base.types import PRECISIONS, Shape
from staticgrad.graph.graph import Graph, Tensor, get_default_graph
from staticgrad.graph.naming import Holder, variables_of
from staticgrad.ops.effects import gradient_key
from staticgrad.runtime.running.binding import wrong_shape
from staticgrad.runtime.running.state import variable_key

SIZES = ("ranges", "exact")

Variables: TypeAlias = Tensor | Holder | Iterable[Tensor] | Mapping[str, Tensor]  # that are saved or restored

# -- options ----------------------------------------------------------------------------------------------------------


def check_sizes(sizes: str | None) -> None:
    """Refuse what is no way to compile for open sizes."""
    if sizes is not None and sizes not in SIZES:
        raise StaticGradError(f"sizes {sizes!r}: expected one of {', '.join(map(repr, SIZES))}")


def check_budget(memory_budget: int | float | None) -> None:
    """Refuse what is no number of bytes and no part of the whole."""
    if memory_budget is None:
        return
    is_part = isinstance(memory_budget, float) and 0 < memory_budget <= 1
    is_bytes = isinstance(memory_budget, int | np.integer) and not isinstance(memory_budget, bool)
    if not (is_part or (is_bytes and memory_budget >= 0)):
        raise StaticGradError(
            f"memory_budget {memory_budget!r}: expected bytes as an int, or a part of the whole as a float in (0, 1]"
        )


def check_precision(matmul_precision: str) -> None:
    """Refuse what is no precision of products."""
    if matmul_precision not in PRECISIONS:
        allowed = ", ".join(map(repr, PRECISIONS))
        raise StaticGradError(f"matmul_precision {matmul_precision!r}: expected one of {allowed}")


def chosen_threads(num_threads: int | None) -> int:
    """The number of threads that a program may use."""
    if num_threads is None:
        chosen = config.get("THREADS")
        num_threads = int(chosen) if chosen else config.available_cores()
    if not isinstance(num_threads, int | np.integer) or num_threads < 1:
        raise StaticGradError(f"num_threads: expected an int of at least 1, actual {num_threads!r}")
    return int(num_threads)


def chosen_seed(seed: int) -> int:
    """The seed of a session's random numbers."""
    if not isinstance(seed, int | np.integer):
        raise StaticGradError(f"a seed is an int of 64 bits, not {seed!r}")
    return int(seed)


def chosen_graph(graph: Graph | None) -> Graph:
    """The graph of a session."""
    if graph is not None and not isinstance(graph, Graph):
        is_tensor = "; a tensor is what sess.run(x) fetches" if isinstance(graph, Tensor) else ""
        raise GraphError(f"Session: expected a graph, actual {graph!r}{is_tensor}")
    return get_default_graph() if graph is None else graph


# -- feeds ------------------------------------------------------------------------------------------------------------


def checked_feeds(graph: Graph, feeds: Mapping[Tensor, Any] | None) -> Mapping[Tensor, Any]:
    """Feeds of a run, with arrays; none where None is given.

    Raises:
        FeedError: no dict, or one that has other keys than tensors of the graph.
    """
    if feeds is None:
        return {}
    if not isinstance(feeds, (dict, Mapping)):
        raise FeedError(f"feeds: expected a dict from tensors to arrays, actual {type(feeds).__name__}")
    for x in feeds:
        _check_fed(graph, x)
    return feeds


def declared_feeds(
    graph: Graph, feeds: Tensor | Sequence[Tensor] | Mapping[Tensor, Shape]
) -> tuple[list[Tensor], list[Shape]]:
    """The tensors that a program will be fed, and their shapes, as far as they are known.

    Raises:
        FeedError: no tensor of the graph, one that is fed twice, or a shape that does not fit.
    """
    if isinstance(feeds, Mapping):
        tensors, shapes = list(feeds), [_fed_shape(graph, x, shape) for x, shape in feeds.items()]
    else:
        tensors = [feeds] if isinstance(feeds, Tensor) else list(feeds)
        for x in tensors:
            _check_fed(graph, x)
        shapes = [x.shape for x in tensors]
    if len({id(x) for x in tensors}) != len(tensors):
        raise FeedError("a tensor is fed twice: " + ", ".join(repr(x.name) for x in tensors))
    return tensors, shapes


def _check_fed(graph: Graph, x: object) -> None:
    if not isinstance(x, Tensor):
        raise FeedError(f"feeds go by tensor, not by {x!r}")
    if x.op.graph is not graph:
        where = x.graph.whereabouts(x, "the session's") + graph.again_elsewhere(x)
        raise FeedError(f"cannot feed: {where}", source=x.source if x.graph.keeps_gradients else None)


def _fed_shape(graph: Graph, x: Tensor, shape: Any) -> Shape:
    """The shape of a feed: the declared one, with numbers where ``shape`` has them."""
    _check_fed(graph, x)
    if shape is None:
        return x.shape
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    fits = len(sizes) == x.ndim and all(
        given is None or given == size or (isinstance(given, int | np.integer) and not isinstance(size, int))
        for size, given in zip(x.shape, sizes, strict=True)
    )
    if not fits:
        raise wrong_shape(x, sizes, f"{x.name!r}")
    return tuple(
        int(given) if isinstance(given, int | np.integer) else size for size, given in zip(x.shape, sizes, strict=True)
    )


# -- variables and gradients ------------------------------------------------------------------------------------------


def key_of(graph: Graph, variable: object) -> str:
    """The key of a variable.

    Raises:
        FetchError: it is none of this graph.
    """
    key = variable_key(graph, variable) if isinstance(variable, Tensor) else None
    if key is None:
        source = getattr(variable, "source", None)
        what = f"the module {type(variable).__name__}" if isinstance(variable, Holder) else repr(variable)
        raise FetchError(f"{what} is no variable of this graph{_instead(graph, variable)}", source=source)
    return key


def _instead(graph: Graph, other: object) -> str:
    """A hint on what to write in the place of what is no variable."""
    if isinstance(other, Tensor):
        is_here = graph.holds(other)
        return ", each run computes it: feed it for one run" if is_here else graph.again_elsewhere(other)
    if isinstance(other, Holder):
        return ": it has several, net.parameters() and net.buffers(), and net.state_dict(sess) gives their values"
    if isinstance(other, str) and other in graph.variables:
        return f": variables go by tensor, that of this name is sess.graph.variables[{other!r}]"
    if isinstance(other, str):
        return ": variables go by tensor, and sess.graph.variables has those that there are by name"
    return ""


def keys_in_file(graph: Graph, variables: Variables) -> dict[str, str]:
    """The keys of variables by their names in a file.

    Raises:
        FetchError: one is none of this graph.
    """
    if isinstance(variables, Mapping):
        return {name: key_of(graph, x) for name, x in variables.items()}
    if isinstance(variables, Holder):
        variables = variables_of(variables)
    several = [variables] if isinstance(variables, Tensor | str) else variables
    return {key: key for key in (key_of(graph, x) for x in several)}


def key_of_gradient(graph: Graph, x: Tensor) -> str:
    """The key of the gradient that adds up for a tensor.

    Raises:
        FetchError: it is none of this graph.
    """
    if not isinstance(x, Tensor) or x.op.graph is not graph:
        again = graph.again_elsewhere(x) if isinstance(x, Tensor) else ""
        raise FetchError(f"{x!r} is no tensor of this graph{again}", source=getattr(x, "source", None))
    return gradient_key(x)


def check_adds_up(x: Tensor) -> None:
    """Refuse a tensor for which no gradient adds up."""
    if not (x.requires_grad and (x.is_leaf or x.retains_grad)):
        raise GradientError(
            f"set_grad: no gradient adds up for {x.name!r}: it is no leaf that requires one and has no retain_grad",
            source=x.source,
        )
