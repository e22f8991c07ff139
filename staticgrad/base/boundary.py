"""The boundary between users and this package: public functions end an error's traceback at the user's line.

Input: functions and classes, as they are defined. Output: the same under the names by which users know them, with what
``staticgrad.base.tracebacks`` does to errors around their calls. Functions that call each other inside the package do
so directly. ``Session.run``, operators and whatever else must not cost one more call has ``end_at_user`` in an
``except`` of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def boundary(function: F) -> F:
    """A function whose errors end at the line that calls it. To ``inspect``, ``help`` and type checkers it is the
    function itself."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            end_at_user(error, function)
            raise

    return cast(F, called)


def end_at_user(error: Exception, function: Callable[..., object] | None = None) -> None:
    """Take the frames of this package out of an error's traceback, if it is meant for users; ``raise`` comes next.

    Args:
        function: whose call may be what failed: then a keyword that it does not have is answered.
    """
    from staticgrad.base.tracebacks import cut

    cut(error, function)


def exposed(value: Any, module: str, name: str) -> Any:
    """The object that a module for users has under ``name``: for a function its boundary, which is pickled and
    documented as that module's; a class itself, with a boundary around those of its initializers that are defined in
    this package; anything else unchanged."""
    if isinstance(value, FunctionType):
        function = boundary(value)
        function.__module__, function.__name__, function.__qualname__ = module, name, name
        return function
    for cls in value.__mro__ if isinstance(value, type) else ():
        initializer = vars(cls).get("__init__") if cls.__module__.startswith("staticgrad.") else None
        if isinstance(initializer, FunctionType):
            called = initializer if hasattr(initializer, "__wrapped__") else boundary(initializer)
            called.__doc__ = called.__doc__ or "The docstring of the class says what the arguments are."
            setattr(cls, "__init__", called)  # noqa: B010  mypy knows no such assignment
    return value


def expose(names: dict[str, Any]) -> None:
    """Expose all that a module's ``__all__`` names; ``names`` are its globals."""
    for name in names["__all__"]:
        names[name] = exposed(names[name], names["__name__"], name)
