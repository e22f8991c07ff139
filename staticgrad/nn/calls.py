"""The record of which calls of modules declared what: in which mode, and with which variables.

A call of a module that is inside no other is noted in the graph (``staticgrad.graph.warned``), with the modules that
read ``training`` meanwhile. What a program is then made of tells whether a mode was changed too late, and whether a
layer was made once more where the first was meant.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any, Protocol

from staticgrad.base import nests
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import graph_of
from staticgrad.graph.naming import Place
from staticgrad.graph.warned import Call, History


class CalledModule(Protocol):
    """The part of a module of layers that is noted."""

    @property
    def _holder_place(self) -> Place: ...

    def _state(self) -> Mapping[str, Any]: ...

    def forward(self, *args: Any, **kwargs: Any) -> Any: ...


_histories: weakref.WeakKeyDictionary[Place, History] = weakref.WeakKeyDictionary()


class _Open(threading.local):
    modes: dict[History, bool] | None = None  # in which mode each module was that read it, during the outermost call


_open = _Open()


def _history(module: CalledModule) -> History:
    place = module._holder_place
    found = _histories.get(place)
    if found is None:
        found = _histories[place] = History(type(module).__name__)
    return found


def note_read(module: CalledModule, training: bool) -> None:
    """A module has looked at its mode; only a call declares something by it."""
    if _open.modes is not None:
        history = _history(module)
        history.current = training
        _open.modes[history] = training


def note_switch(module: CalledModule, training: bool) -> None:
    """The mode of a module has changed."""
    _history(module).switch(training)


def call(module: CalledModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what ``module.forward`` returns; the call is noted if no other is running in this thread."""
    if _open.modes is not None:
        return module.forward(*args, **kwargs)
    tensors = [x for x in nests.flatten([args, kwargs]) if isinstance(x, Tensor)]
    graph = graph_of(tensors)
    first, modes = len(graph.nodes), dict[History, bool]()
    _open.modes = modes
    try:
        result = module.forward(*args, **kwargs)
    finally:
        _open.modes = None
    place = module._holder_place
    alone = not any(home.place.holder() is not None for home in place.homes)
    variables = tuple(module._state().items()) if alone and place.source is not None else ()
    noted = Call(type(module).__name__, place.source, first, len(graph.nodes), modes, variables)
    for history, training in modes.items():
        history.declared.add(training)
        history.graphs.add(graph)
    if modes or variables:
        graph.calls.append(noted)
    return result
