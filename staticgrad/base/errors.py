"""The errors and warnings that users see, and the source line that each one names.

A message reads: what is wrong with which tensor, then ``expected`` and ``actual``, then where the user declared it. A
warning says what happens silently and what to write instead; its location is the user's line.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn, Self

from staticgrad.base.frozen import frozen

LONGEST_QUOTE = 120  # characters of a source line

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_ROOTS = tuple(
    os.path.join(path, "")
    for path in {
        _PACKAGE,
        os.path.join(os.path.dirname(_PACKAGE), "compiler"),
        os.path.join(os.path.dirname(_PACKAGE), "runtime"),
    }
)


@frozen
class SourceLine:
    """A line of the user's program."""

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    @property
    def cell(self) -> str | None:
        """``Cell In[3]``, as IPython calls the cell of a notebook whose line this is; None for a line of a file."""
        get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
        name_of = getattr(getattr(get_shell and get_shell(), "compile", None), "format_code_name", None)
        named = name_of(self.file) if name_of is not None else None
        return " ".join(named) if named else None

    def __str__(self) -> str:
        text = self.text
        if len(text) > LONGEST_QUOTE:
            text = f"{text[: LONGEST_QUOTE - 1]}…"
        return f"{self.cell or self.file}:{self.line}" + (f": {text}" if text else "")


BEGIN_ANEW = (
    "In a notebook, begin the cell that declares with sg.reset_default_graph() or g = sg.Graph(), so that running it"
    " again begins anew"
)


def ran_before(before: SourceLine | None, now: SourceLine | None) -> str:
    """The reason why a declaration may repeat an earlier one: its line, or a notebook's cell, ran again; "" for lines
    of which neither is the case."""
    if before is None or now is None:
        return ""
    if (before.file, before.line) == (now.file, now.line):
        return "the same line declared it before"
    is_cell = before.cell is not None and now.cell is not None
    return "another cell declared it, or this one before a change" if is_cell else ""


def again_hint(before: SourceLine | None, now: SourceLine | None) -> str:
    """Advice for a declaration that collides with an earlier one because its line, or a notebook's cell, ran again; ""
    for lines of which neither is the case."""
    what = ran_before(before, now)
    return (
        f"\n  {what}: {BEGIN_ANEW[0].lower()}{BEGIN_ANEW[1:]}; in a loop, give each a name of its own" if what else ""
    )


_override = threading.local()  # source: see at_source; silent: see silent


class at_source:
    """A block whose declarations belong to ``source``: derived nodes keep the line of their primal."""

    __slots__ = ("_before", "_source")

    def __init__(self, source: SourceLine | None) -> None:
        self._source = source

    def __enter__(self) -> Self:
        self._before: SourceLine | None = getattr(_override, "source", None)
        _override.source = self._source
        return self

    def move(self, source: SourceLine | None) -> None:
        """Let declarations belong to ``source`` from now on."""
        _override.source = source

    def __exit__(self, *_: object) -> None:
        _override.source = self._before


def user_source() -> SourceLine | None:
    """The innermost line outside this package and its decorators, or the one that ``at_source`` set."""
    override: SourceLine | None = getattr(_override, "source", None)
    if override is not None:
        return override
    frame = _user_frame()
    return None if frame is None else SourceLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def _user_frame() -> FrameType | None:
    """The innermost call outside this package and its decorators."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_inside(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


@functools.cache
def is_inside(file: str) -> bool:
    """True if a file of code belongs to this package, is what its decorators are made of, or starts modules."""
    return file.startswith((*_ROOTS, "<frozen ")) or file == contextlib.__file__


class StaticGradError(Exception):
    """The base of every error of this package. ``source`` is the user's line that declared what is at fault,
    ``message`` the text without it.

    Example:
        >>> try:
        ...     sg.reshape([1, 2, 3], (2, 2))
        ... except sg.StaticGradError as error:
        ...     print(type(error).__name__, error.source is not None)
        GraphError True
    """

    def __init__(self, message: str, *, source: SourceLine | None = None) -> None:
        """Make an error with a message, and the user's line that it is about."""
        message = message.encode(errors="backslashreplace").decode()  # half a pair of surrogates could not be printed
        self.message = message
        self.source = source
        super().__init__(message if source is None else f"{message}\n  declared at {source}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, vars(self).copy())


def _restored(kind: type[StaticGradError], args: tuple[object, ...], state: dict[str, Any]) -> StaticGradError:
    """An error that was pickled, as it was: no line is added to its message."""
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(state)
    return error


def refuse_copies(what: str, instead: str) -> Callable[[Any, Any], NoReturn]:
    """A method ``__reduce_ex__`` for what can be neither copied nor pickled; ``instead`` says what to do."""

    def __reduce_ex__(self: object, _: object) -> NoReturn:
        raise TypeError(f"{what} can be neither copied nor pickled: {instead}")

    return __reduce_ex__


@contextlib.contextmanager
def called_for(what: str, source: SourceLine | None) -> Iterator[None]:
    """A function of the user's that is called here for ``what``, declared at ``source``, says so in what it raises: an
    error of this package in its message, any other in a note of its traceback."""
    try:
        yield
    except Exception as error:
        where = f"  in {what}" if source is None else f"  in {what}, declared at {source}"
        if isinstance(error, StaticGradError):
            if not error.args[0].endswith(where):  # as of functions that call each other over and over
                error.args = (f"{error.args[0]}\n{where}",)
        else:
            error.add_note(where)
        raise


class GraphError(StaticGradError, ValueError):
    """A bad declaration: shapes, dtypes, tensors of two graphs, a finalized graph.

    Example:
        >>> sg.zeros((2, 3)) @ sg.zeros((2, 3))
        Traceback (most recent call last):
            ...
        staticgrad.errors.GraphError: matmul: summed sizes of float32[2, 3] and float32[2, 3]: expected 3, actual 2...
    """

    def __init__(self, message: str, *, source: SourceLine | None = None) -> None:
        super().__init__(message, source=source if source is not None else user_source())


class AbsentError(GraphError, AttributeError):
    """An attribute that this tensor cannot have, so that ``hasattr`` gives False.

    Example:
        >>> x = sg.zeros(3)
        >>> hasattr(x, "mT"), hasattr(x, "T")
        (False, True)
    """


@frozen
class UnsupportedOp:
    """An op of another system's program that is not supported: why, how often the program has it, and on which lines,
    where the system knows them."""

    name: str
    reason: str
    count: int
    sources: tuple[SourceLine, ...]

    def __str__(self) -> str:
        times = "once" if self.count == 1 else f"{self.count} times"
        return "\n    ".join([f"{self.name} ({times}): {self.reason}", *map(str, self.sources)])


class UnsupportedError(GraphError, NotImplementedError):
    """A program of another system has something that is not supported here. ``ops`` are all ops of the program of which
    that is known before anything is declared.

    Example:
        >>> issubclass(sg.UnsupportedError, sg.GraphError), issubclass(sg.UnsupportedError, NotImplementedError)
        (True, True)
    """

    def __init__(self, message: str, *, ops: Sequence[UnsupportedOp] = (), source: SourceLine | None = None) -> None:
        """Make an error with a message, what is not supported, and the line that the other system knows."""
        StaticGradError.__init__(self, message, source=source)  # no line of a program here is at fault
        self.ops = tuple(ops)


class GradientError(StaticGradError, RuntimeError):
    """A gradient was asked for where there is none.

    Example:
        >>> sg.gradients(sg.argmax([1.0, 2.0]), sg.constant(1.0))
        Traceback (most recent call last):
            ...
        staticgrad.errors.GradientError: ys: only floating-point tensors have gradients: 'argmax' is int64...
    """


class BuffersFreedError(StaticGradError, RuntimeError):
    """A backward would read values that an earlier backward gave back.

    Example:
        >>> w = sg.Variable(3.0)
        >>> tape = sg.Session().forward(loss := w * w)
        >>> tape.backward(loss)
        >>> tape.backward(loss)
        Traceback (most recent call last):
            ...
        staticgrad.errors.BuffersFreedError: Trying to backward through the graph a second time...
    """


class StateChangedError(StaticGradError, RuntimeError):
    """A variable that a tape saved has changed since.

    Example:
        >>> w = sg.Variable(3.0)
        >>> sess = sg.Session()
        >>> tape = sess.forward(loss := w * w)
        >>> sess.set(w, 4.0)
        >>> tape.backward(loss)
        Traceback (most recent call last):
            ...
        staticgrad.errors.StateChangedError: variable 'variable' was written after this tape's forward...
    """


class FeedError(StaticGradError, ValueError):
    """A missing, doubled or foreign feed, or one of a wrong shape or dtype.

    Example:
        >>> x = sg.placeholder((2,), name="x")
        >>> sg.Session().run(x * 2, {x: [1.0, 2.0, 3.0]})
        Traceback (most recent call last):
            ...
        staticgrad.errors.FeedError: feed of 'x': wrong shape...
    """


class FetchError(StaticGradError, ValueError):
    """Something was fetched that is not a tensor or an op of this graph.

    Example:
        >>> sg.Session().run(3.0)
        Traceback (most recent call last):
            ...
        staticgrad.errors.FetchError: cannot fetch 3.0: expected tensors and ops of the session's graph
    """


class BoundsError(StaticGradError, IndexError):
    """An index or a class label out of range.

    Example:
        >>> sg.take([1.0, 2.0], 5)
        Traceback (most recent call last):
            ...
        staticgrad.errors.BoundsError: take: index 5 is out of range for size 2...
    """


def out_of_range(what: str, size: int, smallest: int, largest: int, wraps: bool) -> str:
    """The message for indices in [smallest, largest] where [0, size) is allowed; with ``wraps`` those that were given
    negative had been added to the size."""
    lowest = -size if wraps else 0
    found = smallest + lowest if smallest < 0 else largest
    return f"{what}: index {found} is out of range for size {size}\n  expected [{lowest}, {size})\n  actual   {found}"


class NumericsError(StaticGradError, FloatingPointError):
    """``check_numerics=True``: the first op that made a NaN or an infinity.

    Example:
        >>> x = sg.placeholder(())
        >>> sess = sg.Session(check_numerics=True)
        >>> sess.run(sg.log(x), {x: -1.0})
        Traceback (most recent call last):
            ...
        staticgrad.errors.NumericsError: op 'log' ('log') made a NaN or infinity...
    """


class FormatError(StaticGradError, ValueError):
    """A damaged or foreign file.

    Example:
        >>> sg.parse("no graph")
        Traceback (most recent call last):
            ...
        staticgrad.errors.FormatError: line 1: expected a node at 'no graph'
    """


# -- warnings ---------------------------------------------------------------------------------------------------------


class StaticGradWarning(UserWarning):
    """The base of every warning of this package: something silent that is hardly meant. Its location is the user's
    line, and Python shows it once for each line; ``warnings.simplefilter`` and filters by module choose otherwise.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore", sg.StaticGradWarning)
        ...     y = sg.constant([1.0, 2.0]) * np.zeros(2)
        >>> y.dtype
        dtype('float64')
    """


class PromotionWarning(StaticGradWarning):
    """A tensor of fewer bits was raised to float64 by what it met.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     y = sg.constant([1.0, 2.0]) * np.float64(0.5)
        >>> y.dtype, caught[0].category.__name__
        (dtype('float64'), 'PromotionWarning')
        >>> (sg.constant([1.0, 2.0]) * 0.5).dtype
        dtype('float32')
    """


class BroadcastWarning(StaticGradWarning):
    """The input and the target of a loss have different shapes, which are broadcast to a third one.

    Example:
        >>> import warnings
        >>> x, t = sg.zeros((4, 1)), sg.zeros((4,))
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     loss = sg.nn.mse_loss(x, t)
        >>> caught[0].category.__name__
        'BroadcastWarning'
        >>> loss = sg.nn.mse_loss(x.reshape(t.shape), t)
    """


class ModeWarning(StaticGradWarning):
    """A program is made of what a module declared in one mode, though the module has been switched to the other.

    Example:
        >>> import warnings
        >>> net, x = sg.nn.Dropout(0.5), sg.ones((3,))
        >>> y = net(x)
        >>> net = net.eval()
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     value = sg.Session().run(y)  # as declared: some elements are dropped
        >>> caught[0].category.__name__
        'ModeWarning'
        >>> sg.Session().run(net(x))
        array([1., 1., 1.], dtype=float32)
    """


class MemoryBudgetWarning(StaticGradWarning):
    """A tape keeps more than its ``memory_budget`` allows: the least that was found.

    Example:
        >>> import warnings
        >>> x = sg.placeholder((1000,), requires_grad=True)
        >>> y = sg.sum(sg.sin(x))
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     tape = sg.Session().forward(y, {x: np.ones(1000, np.float32)}, memory_budget=1)
        >>> tape.memory.saved_bytes, caught[0].category.__name__
        (4000, 'MemoryBudgetWarning')
    """


class StaleGradientWarning(StaticGradWarning):
    """A program runs gradients that were declared before a hook was registered or a variable was frozen.

    Example:
        >>> import warnings
        >>> w = sg.Variable(3.0)
        >>> h = w * 2
        >>> (dw,) = sg.gradients(h**2, [w])
        >>> handle = h.register_hook(lambda grad: grad * 10)
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     before = sg.Session().run(dw)  # as declared: without the hook
        >>> float(before), caught[0].category.__name__
        (24.0, 'StaleGradientWarning')
        >>> sg.Session().run(sg.gradients(h**2, [w])[0])
        array(240., dtype=float32)
    """


class GrowthWarning(StaticGradWarning):
    """The same ops are declared anew before each run, so that each compiles another program.

    Example:
        >>> import warnings
        >>> x, sess = sg.placeholder(()), sg.Session()
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     for value in range(5):
        ...         y = sess.run(x * 2, {x: value})
        >>> caught[0].category.__name__
        'GrowthWarning'
        >>> y = x * 2
        >>> [float(sess.run(y, {x: value})) for value in range(3)]
        [0.0, 2.0, 4.0]
    """


class RecompileWarning(StaticGradWarning):
    """One executable has compiled a program for each of several sizes, as one program cannot serve them.

    Example:
        >>> import warnings
        >>> x, sess = sg.placeholder((None,)), sg.Session()
        >>> pairs = sg.sum(x.reshape((x.shape[0] // 2, 2)), 1)  # only for even sizes: which, no range says
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     for size in (2, 4, 6, 8, 10):
        ...         value = sess.run(pairs, {x: [1.0] * size})
        >>> caught[0].category.__name__
        'RecompileWarning'
    """


class UpdateWarning(StaticGradWarning):
    """An augmented assignment to a variable, ``w -= step``, made a new tensor: no run changes the variable.

    Example:
        >>> import warnings
        >>> p = w = sg.Variable([1.0, 2.0])
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     p -= 0.5
        >>> caught[0].category.__name__, p is w
        ('UpdateWarning', False)
        >>> update, sess = sg.assign(w, w - 0.5), sg.Session()
        >>> sess.run(update)
        >>> sess.get(w)
        array([0.5, 1.5], dtype=float32)
    """


class FrozenValueWarning(StaticGradWarning):
    """A function for NumPy was traced with ``freeze=True``, and on some lines what it does depends on values: these
    keep what they were at the arguments of the first call.

    Example:
        >>> import warnings
        >>> def payoff(x):
        ...     return x.sum() if x.sum() > 0 else 0.0 * x.sum()
        >>> frozen = sg.function(payoff, numpy=True, freeze=True)
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     value = frozen(np.array([1.0, 2.0]))
        >>> float(value), caught[0].category.__name__
        (3.0, 'FrozenValueWarning')
    """


class DuplicateLayerWarning(StaticGradWarning):
    """A layer is used where an equal one may be meant: a program reads weights that nothing trains, and those of an
    equal layer are trained; a cell that ran again has made its net once more in the same graph; or a checkpoint holds
    two such nets, and the first is restored.

    Example:
        >>> import warnings
        >>> def net(x):
        ...     return sg.nn.Linear(2, 1)(x)
        >>> x, sess = sg.ones((1, 2)), sg.Session()
        >>> train = sg.optim.SGD(0.1).minimize(sg.sum(net(x)))
        >>> sess.run(train)
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     y = sess.run(net(x))  # of other weights
        >>> caught[0].category.__name__
        'DuplicateLayerWarning'
    """


class ExecutorWarning(StaticGradWarning):
    """The executor that ``exe.map`` was given takes no more work; the rest is computed in this process.

    Example:
        >>> import warnings
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> x = sg.placeholder(())
        >>> square, pool = sg.Session().compile(x * x, x), ThreadPoolExecutor()
        >>> pool.shutdown()
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     total = square.map([1.0, 2.0, 3.0], reduce="sum", executor=pool)
        >>> float(total), caught[0].category.__name__
        (14.0, 'ExecutorWarning')
    """


@contextlib.contextmanager
def silent(category: type[StaticGradWarning]) -> Iterator[None]:
    """Nothing that is declared in this block warns of ``category``: no remedy would change what comes out of it."""
    before = getattr(_override, "silent", ())
    _override.silent = (*before, category)
    try:
        yield
    finally:
        _override.silent = before


def warn(category: type[StaticGradWarning], message: str) -> None:
    """Warn at the user's line that is running, unless what is declared there is derived from another declaration, or in
    a block where nothing warns of ``category``."""
    frame = _user_frame()
    if frame is None or getattr(_override, "source", None) is not None or category in getattr(_override, "silent", ()):
        return
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    file = _shown_file(SourceLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
    module = names.get("__name__", "__main__")  # without one Python would pass the warning over
    warnings.warn_explicit(message, category, file, frame.f_lineno, module, registry)


def _shown_file(source: SourceLine) -> str:
    """The file name that a warning shows: the file, or for the cell of a notebook its name, under which its lines are
    cached, so that the warning can quote one."""
    cell = source.cell
    if cell is None:
        return source.file
    lines = linecache.getlines(source.file)
    linecache.cache[cell] = sum(map(len, lines)), None, lines, cell
    return cell


for _kind in tuple(globals().values()):
    if isinstance(_kind, type) and issubclass(_kind, Exception) and _kind.__module__ == __name__:
        _kind.__module__ = "staticgrad.errors"  # where users have them from
