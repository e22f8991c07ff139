"""Scopes: what holds for the ops that a thread declares now.

    gradient mode   values pass, gradients may not: ``no_grad`` and its like
    control         the nodes that run before what is declared
    checkpoint      what is declared is computed again for a backward
    module          whose call declares
    primal          the node whose derivative is declared
    rules           derivative rules of the user's that run

Each is a block (``with``), of the thread that opened it. ``Graph.add`` reads them.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, cast, overload

from staticgrad.base.errors import GraphError, at_source
from staticgrad.graph.optable import F, Op

if TYPE_CHECKING:
    from staticgrad.graph.graph import Node, Tensor
    from staticgrad.graph.naming import Place


class _Scope(threading.local):
    """The scopes that are open in a thread."""

    def __init__(self) -> None:
        self.grad_enabled = True
        self.grad_enabled_before: list[bool] = []  # each block of a gradient mode that is open
        self.control: tuple[Node, ...] = ()
        self.checkpoint: Checkpoint | None = None
        self.module: Place | None = None
        self.primal: Node | None = None
        self.rules: tuple[tuple[Tensor, ...], ...] = ()  # what each of the user's rules that run was given


scope = _Scope()


class Checkpoint:
    """The ops that one call of ``sg.checkpoint`` declares; ``outer`` is the call around it."""

    __slots__ = ("outer",)

    def __init__(self, outer: Checkpoint | None) -> None:
        self.outer = outer

    def holds(self, node: Node) -> bool:
        """True if ``node`` was declared in here."""
        inside = node.checkpoint
        while inside is not None and inside is not self:
            inside = inside.outer
        return inside is self


class GradMode:
    """A gradient mode of this thread, for a block or, as a decorator, for the calls of a function. Of a generator
    function every step runs under it, and what runs between the steps does not."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled

    def __enter__(self) -> None:
        scope.grad_enabled_before.append(scope.grad_enabled)
        scope.grad_enabled = self._enabled

    def __exit__(self, *_: object) -> None:
        scope.grad_enabled = scope.grad_enabled_before.pop()

    def __repr__(self) -> str:
        return f"<gradient mode: {'on' if self._enabled else 'off'}>"

    def __call__(self, fn: F) -> F:
        if not callable(fn):
            raise GraphError(f"a gradient mode decorates functions, actual {fn!r}")
        if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
            raise GraphError(
                f"a gradient mode is of a thread, whose other tasks run between the steps of {fn!r}:"
                " use it as a block in the function, around what awaits nothing"
            )
        enabled, is_generator = self._enabled, inspect.isgeneratorfunction(fn)

        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if is_generator:
                return _steps(fn(*args, **kwargs), enabled)
            with GradMode(enabled):
                return fn(*args, **kwargs)

        return cast(F, wrapped)


def _steps(inner: Generator[Any, Any, Any], enabled: bool) -> Generator[Any, Any, Any]:
    """A generator whose steps, among them what is sent and thrown into it and its end, run under a gradient mode."""
    step: Callable[[], Any] = functools.partial(next, inner)
    while True:
        try:
            with GradMode(enabled):
                value = step()
        except StopIteration as stop:
            return stop.value
        try:
            step = functools.partial(inner.send, (yield value))
        except GeneratorExit:
            with GradMode(enabled):
                inner.close()
            raise
        except BaseException as error:
            step = functools.partial(inner.throw, error)


@overload
def no_grad(fn: None = None) -> GradMode: ...
@overload
def no_grad(fn: F) -> F: ...
def no_grad(fn: Any = None) -> Any:
    """Declare what is inside without gradients: values pass, gradients do not.

    ``with sg.no_grad():`` is for a block; ``@sg.no_grad()`` or ``@sg.no_grad`` before a function for its calls, or for
    the steps of its generators.

    Example:
        >>> x = sg.constant(3.0)
        >>> with sg.no_grad():
        ...     factor = x * 2
        >>> (dx,) = sg.gradients(factor * x, [x])
        >>> sg.Session().run(dx)
        array(6., dtype=float32)
    """
    return GradMode(False) if fn is None else GradMode(False)(fn)


@overload
def enable_grad(fn: None = None) -> GradMode: ...
@overload
def enable_grad(fn: F) -> F: ...
def enable_grad(fn: Any = None) -> Any:
    """Undo ``no_grad`` for a block inside it, or as a decorator for the calls of a function.

    Example:
        >>> x = sg.Variable(3.0)
        >>> with sg.no_grad():
        ...     a = x * 2
        ...     with sg.enable_grad():
        ...         b = x * 2
        >>> a.requires_grad, b.requires_grad
        (False, True)
    """
    return GradMode(True) if fn is None else GradMode(True)(fn)


class _SetGradMode(GradMode):
    """A mode that holds from now on; used as a block or a decorator, for that alone."""

    def __init__(self, enabled: bool) -> None:
        super().__init__(enabled)
        self._first = {threading.get_ident(): scope.grad_enabled}
        scope.grad_enabled = enabled

    def _take_back(self) -> None:
        """Undo what the declaration of this mode did: once, and in its own thread."""
        scope.grad_enabled = self._first.pop(threading.get_ident(), scope.grad_enabled)

    def __enter__(self) -> None:
        self._take_back()
        super().__enter__()

    def __call__(self, fn: F) -> F:
        self._take_back()
        return super().__call__(fn)


def set_grad_enabled(mode: bool) -> GradMode:
    """Say if what this thread declares from now on passes gradients; ``with`` restores what was before at its end, and
    as a decorator it is for the calls of a function alone.

    Example:
        >>> with sg.set_grad_enabled(False):
        ...     y = sg.Variable(1.0) * 2
        >>> y.requires_grad, sg.is_grad_enabled()
        (False, True)
    """
    return _SetGradMode(bool(mode))


def is_grad_enabled() -> bool:
    """Tell if what this thread declares now passes gradients: True outside of ``no_grad``.

    Example:
        >>> with sg.no_grad():
        ...     sg.is_grad_enabled()
        False
        >>> sg.is_grad_enabled()
        True
    """
    return scope.grad_enabled


@contextlib.contextmanager
def control_dependencies(nodes: Sequence[Node | Tensor]) -> Iterator[None]:
    """Let what is declared inside run after ``nodes``, and see the variables that they write.

    What was declared before keeps reading the values at the start of the run: ``sg.identity(w)``, declared inside, is
    the new value of ``w``.

    Example:
        >>> w = sg.Variable(1.0)
        >>> with sg.control_dependencies([sg.assign(w, w * 10)]):
        ...     after = sg.identity(w)
        >>> sg.Session().run([w, after])
        [array(1., dtype=float32), array(10., dtype=float32)]
    """
    added = tuple(n if isinstance(n.op, Op) else n.op for n in nodes)  # the op of a tensor is its node
    before, scope.control = scope.control, (*scope.control, *added)
    try:
        yield
    finally:
        scope.control = before


@contextlib.contextmanager
def uncontrolled() -> Iterator[None]:
    """Declare what is there whatever runs: a variable, or an array that all its readers share. Those outside of the
    surrounding ``control_dependencies`` must not run these."""
    before, scope.control = scope.control, ()
    try:
        yield
    finally:
        scope.control = before


@contextlib.contextmanager
def checkpointed() -> Iterator[Checkpoint]:
    """A block whose declarations are computed again for a backward instead of being kept."""
    outer = scope.checkpoint
    scope.checkpoint = Checkpoint(outer)
    try:
        yield scope.checkpoint
    finally:
        scope.checkpoint = outer


class in_module:
    """A block whose declarations are made by a call of the module at ``place``."""

    __slots__ = ("_before", "_place")

    def __init__(self, place: Place) -> None:
        self._place = place

    def __enter__(self) -> None:
        self._before, scope.module = scope.module, self._place

    def __exit__(self, *_: object) -> None:
        scope.module = self._before


class in_derivative(at_source):
    """A block whose declarations are part of the derivative of ``primal``, whose source line and module they have."""

    __slots__ = ("_around", "_primal")

    def __init__(self, primal: Node) -> None:
        super().__init__(primal.source)
        self._primal = primal

    def __enter__(self) -> Self:
        super().__enter__()
        self._around = scope.module, scope.primal
        scope.module, scope.primal = self._primal.module, self._primal
        return self

    def __exit__(self, *_: object) -> None:
        scope.module, scope.primal = self._around
        super().__exit__()


@contextlib.contextmanager
def in_rule(given: Sequence[Tensor]) -> Iterator[int]:
    """Run a derivative rule of the user's, in which the tensors it was ``given`` are independent variables. Gives how
    many rules run now, each within the derivatives that the one before it declares."""
    before, scope.rules = scope.rules, (*scope.rules, tuple(given))
    try:
        yield len(scope.rules)
    finally:
        scope.rules = before


def independent_now() -> tuple[Tensor, ...]:
    """The tensors that derivatives declared now take for independent of each other and of all else: those of the
    innermost rule that runs."""
    return scope.rules[-1] if scope.rules else ()


def closed_checkpoint(node: Node) -> Checkpoint | None:
    """The innermost checkpoint that ``node`` was declared in and that is not still being declared."""
    inside, current = node.checkpoint, scope.checkpoint
    while current is not None:
        if current is inside:
            return None
        current = current.outer
    return inside


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Declare without the surrounding block's control dependencies and gradient mode (used while deriving)."""
    control, enabled = scope.control, scope.grad_enabled
    scope.control, scope.grad_enabled = (), True
    try:
        yield
    finally:
        scope.control, scope.grad_enabled = control, enabled


@contextlib.contextmanager
def unscoped() -> Iterator[None]:
    """Declare as if no block of the user's were open in this thread: what a compilation makes is in none of them."""
    module, primal = scope.module, scope.primal
    scope.module = scope.primal = None
    try:
        with in_body(), at_source(None):
            yield
    finally:
        scope.module, scope.primal = module, primal


@contextlib.contextmanager
def in_body() -> Iterator[None]:
    """Declare the body of a loop or branch: isolated, and in no checkpoint around, which repeats the op as a whole."""
    checkpoint, scope.checkpoint = scope.checkpoint, None
    try:
        with isolated():
            yield
    finally:
        scope.checkpoint = checkpoint
