"""The state of one session: variables, accumulated gradients, the run number, and the lock that guards them.

What changes together changes in one step (``runtime.parts.locks.at_once``, or at the end of a program's call in machine
code): an exception of a signal handler finds it as it was before or as it is after.

Every variable lies in the same memory for as long as the session lives, 64-byte aligned and C-contiguous: compiled
programs hold its address and write in place. Those that a program needs first lie side by side, since memory that is
new to the process is found faster in a few large pages than in many small ones. All writes are counted, and the version
of a variable is the number of the last one that changed it.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import iadd, setitem

import numpy as np

from staticgrad.base.addresses import ALIGNMENT, aligned_copy, aligned_empty
from staticgrad.base.errors import GradientError, StaticGradError
from staticgrad.base.types import TensorType, sizes
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.optable import Array
from staticgrad.ops.sources import VARIABLE, VariableAttributes
from staticgrad.ops.variables import Fixed
from staticgrad.runtime.parts.locks import Lock, LockWord, at_once

CLOSED, TORN = 1, 2  # of a session's ``closed``: by its user; in a forked child, half changed by a thread of the parent


def side_by_side(types: Sequence[TensorType]) -> list[Array]:
    """Uninitialised arrays of these types in one piece of memory."""
    from staticgrad.runtime.parts.results import workspace

    ends = list(itertools.accumulate(-(-type_.nbytes // ALIGNMENT) * ALIGNMENT for type_ in types))
    memory = workspace(ends[-1] if ends else 0)
    return [
        memory[start : start + type_.nbytes].view(type_.dtype).reshape(sizes(type_.shape))
        for type_, start in zip(types, [0, *ends], strict=False)
    ]


def first_value(attrs: VariableAttributes, seed: int) -> Array:
    """A variable's value before any write: from the session's seed and the variable's name, and nothing else. It may be
    memory of the declaration, which is not writable, or one number that stands in every place."""
    # Without a generator where it needs none: to make one takes time, and NumPy's are a package that takes long to
    # import.
    if isinstance(attrs.initial, Fixed):
        value = attrs.initial.value
    elif (fill := getattr(attrs.initial, "fill", None)) is not None:
        return np.asarray(fill, attrs.dtype)
    else:
        entropy = [seed & (2**64 - 1), zlib.crc32(attrs.key.encode())]
        value = np.asarray(attrs.initial(np.random.default_rng(np.random.SeedSequence(entropy))))
    if value.shape != attrs.shape:
        raise StaticGradError(
            f"the initial value of variable {attrs.key!r}\n  expected shape {attrs.shape}\n  actual   {value.shape}"
        )
    return value.astype(attrs.dtype, copy=False)


class Accumulated:
    """The sum of a gradient so far: ``array``, which counts only while ``there`` is 1."""

    __slots__ = ("array", "there")

    def __init__(self, array: Array) -> None:
        self.array = array
        self.there = np.zeros(1, np.int64)


class SessionState:
    """Variables and gradients of one session on one graph."""

    def __init__(self, graph: Graph, seed: int) -> None:
        if not -(2**63) <= seed < 2**64:
            raise StaticGradError(f"a seed is an int of 64 bits, not {seed}")
        self.graph = graph
        self.lock = Lock(self._tear)
        # Read and written by compiled entries, hence in memory of its own: the seed's 64 bits, and how many earlier
        # runs took random numbers; whether the session is closed; how many writes of variables there were.
        self.random = np.array([_signed(seed), 0], np.int64)
        self.closed = np.zeros(1, np.int64)
        self.write_count = np.zeros(1, np.int64)
        self._initializing = Lock()  # not the state's lock: who compiles may hold it, and does not wait
        self._values: dict[str, Array] = {}
        self._versions: dict[str, Array] = {}
        self._gradients: dict[str, Accumulated] = {}
        self._forgotten: dict[str, Accumulated] = {}  # whose memory is taken again
        self.equalized: set[str] = set()  # variables that all ranks have got from rank 0
        self.programs: dict[tuple[str, ...], int] = {}  # those of many ranks, by the names of what these do together

    def copy(self, keys: Collection[str] | None = None) -> SessionState:
        """Variables, gradients and random state as they are now, in memory of their own; where ``keys`` are given these
        variables alone, without gradients."""
        other = SessionState(self.graph, self.seed)
        self.lock.brief(self._copy_to, other, keys)
        return other

    def _copy_to(self, other: SessionState, keys: Collection[str] | None) -> None:
        other.random[:] = self.random
        other.write_count[:] = self.write_count
        other.equalized |= self.equalized
        for key, value in self._values.items():
            if keys is None or key in keys:
                other._values[key] = aligned_copy(value)
                other._versions[key] = self._versions[key].copy()
        for key, sum_ in self._gradients.items():
            if keys is None and sum_.there[0]:
                copied = other._gradients[key] = Accumulated(sum_.array.copy())
                copied.there[0] = 1

    def check_open(self) -> None:
        """Raise ``StaticGradError`` if the session is closed, or if this process was forked while it was written."""
        closed = self.closed.item()
        if not closed:
            return
        if closed == TORN:
            raise StaticGradError(
                "this process was forked while another thread was writing the session's variables or gradients, of"
                " which it has but a part: make a new session here, or fork while no thread runs a program that writes"
            )
        raise StaticGradError("the session is closed")

    def _tear(self) -> None:
        """In a forked child: another thread of the parent was changing the state."""
        self.closed[0] = TORN

    # -- variables --------------------------------------------------------------------------------------------------

    def attributes(self, key: str) -> VariableAttributes:
        """The attributes with which a variable was declared; ``KeyError`` where the graph has none of that name."""
        attrs: VariableAttributes = self.graph.variables[key].op.attrs
        return attrs

    def array(self, key: str) -> Array:
        """The memory of a variable, initialised on first use. The same array for as long as the session lives."""
        array = self._values.get(key)
        if array is None:
            self.initialize([key])
            array = self._values[key]
        return array

    def initialize(self, keys: Iterable[str]) -> None:
        """Make those of these variables that have not been used yet, side by side."""
        self._initializing.exclusive(self._initialize, keys)

    def _initialize(self, keys: Iterable[str]) -> None:
        new = [self.attributes(key) for key in dict.fromkeys(keys) if key not in self._values]
        arrays = side_by_side([TensorType(attrs.shape, attrs.dtype) for attrs in new])
        for attrs, array in zip(new, arrays, strict=True):
            array[...] = first_value(attrs, self.seed)
            self._versions[attrs.key] = np.zeros(1, np.int64)
            self._values[attrs.key] = array

    def read(self, key: str) -> Array:
        """A copy of a variable's value."""
        copy: Array = self.lock.brief(self.array(key).copy)
        return copy

    @property
    def writes(self) -> int:
        """The number of writes of variables so far."""
        return int(self.write_count[0])

    def version(self, key: str) -> int:
        """The number of the last write that changed the variable; 0 where there was none."""
        return int(self.version_word(key)[0])

    def is_written(self, key: str) -> bool:
        """True if a variable was written; one that was not used yet is not made for that."""
        return key in self._versions and self.version(key) > 0

    def version_word(self, key: str) -> Array:
        """The version's own memory."""
        self.array(key)
        return self._versions[key]

    def count_writes(self, keys: Sequence[str]) -> None:
        """Count a write of each of ``keys``, which a program has written."""
        for key in keys:
            self.write_count[0] += 1
            self._versions[key][0] = self.write_count[0]

    def write(self, values: Mapping[str, Array]) -> None:
        """Write several variables, all or none."""
        self.change(values)

    def change(
        self,
        values: Mapping[str, Array] | None = None,
        sums: Mapping[str, Array] | None = None,
        random: tuple[int, int] | None = None,
        then: Sequence[Callable[[], object]] = (),
    ) -> None:
        """Write variables, add to accumulated gradients, set seed and run number, and call ``then``, which are
        functions of C: all of it in one step."""
        for key in values or ():
            self.array(key)
        self.lock.exclusive(self._change, values or {}, sums or {}, random, then)

    def _change(
        self,
        values: Mapping[str, Array],
        sums: Mapping[str, Array],
        random: tuple[int, int] | None,
        then: Sequence[Callable[[], object]],
    ) -> None:
        changes: list[Callable[[], object]] = []
        number = self.writes
        for number, (key, value) in enumerate(values.items(), self.writes + 1):
            changes.append(partial(setitem, self.array(key), ..., value))
            changes.append(partial(setitem, self._versions[key], 0, number))
        changes.append(partial(setitem, self.write_count, 0, number))
        for key, value in sums.items():
            memory = self.gradient_memory(key, TensorType(value.shape, value.dtype))
            changes += [partial(iadd, memory.array, value), partial(setitem, memory.there, 0, 1)]
        if random is not None:
            changes.append(partial(setitem, self.random, ..., (_signed(random[0]), random[1])))
        before = int(self.lock.words[LockWord.WRITING])  # not null in a function that a program calls which writes, too
        writing = partial(setitem, self.lock.words, LockWord.WRITING)
        try:
            with np.errstate(all="ignore"):  # sums obey no setting of the user's, here as in programs
                at_once(partial(writing, 1), *changes, *then, partial(writing, before))
        except BaseException:
            writing(before)
            raise

    # -- gradients --------------------------------------------------------------------------------------------------

    def gradient(self, key: str) -> Array | None:
        """A copy of an accumulated gradient, None where there is none yet."""
        return self.lock.brief(self._copy_of_gradient, key)

    def _copy_of_gradient(self, key: str) -> Array | None:
        return self._gradients[key].array.copy() if self.has_gradient(key) else None

    def has_gradient(self, key: str) -> bool:
        found = self._gradients.get(key)
        return found is not None and bool(found.there[0])

    def gradient_memory(self, key: str, type_: TensorType) -> Accumulated:
        """The sum so far for a program to add to, or zeros, which are a gradient from when the program has said that
        they are there. Memory that ``zero_gradients`` has left is taken again.

        Raises:
            GradientError: the sum so far is that of another shape (of a tensor with a free size).
        """
        found = self._gradients.get(key)
        if found is not None and found.there[0]:
            if found.array.shape != type_.shape:
                raise GradientError(
                    f"the gradient of {key.rpartition(':')[0]!r} does not add to those accumulated before: call"
                    f" zero_grad() when sizes change\n  expected shape {found.array.shape}"
                    f"\n  actual   shape {type_.shape}"
                )
            return found
        found = found or self._forgotten.pop(key, None)
        array = found.array if found is not None else None
        if array is None or array.shape != type_.shape:
            array = aligned_empty(type_.shape, type_.dtype)
        array[...] = 0
        new = self._gradients[key] = Accumulated(array)
        return new

    def set_gradient(self, key: str, value: Array | None) -> None:
        """Let a copy of ``value`` be the sum so far, or None be none."""
        self.lock.exclusive(self._set_gradient, key, value)

    def _set_gradient(self, key: str, value: Array | None) -> None:
        gradients = {other: sum_ for other, sum_ in self._gradients.items() if other != key}
        if value is not None:
            new = gradients[key] = Accumulated(aligned_copy(value))
            new.there[0] = 1
        self._gradients = gradients

    def zero_gradients(self) -> None:
        self.lock.exclusive(self._forget_gradients)

    def _forget_gradients(self) -> None:
        self._forgotten = {**self._forgotten, **self._gradients}
        self._gradients = {}

    # -- random numbers ---------------------------------------------------------------------------------------------

    @property
    def seed(self) -> int:
        return int(self.random[0])

    @property
    def runs_drawn(self) -> int:
        """The number of earlier runs that took random numbers."""
        return int(self.random[1])

    def take_run_number(self, runs: int = 1) -> int:
        """The number of this run among those that draw; of several ``runs`` at once that of the first."""
        return self.lock.brief(self._take_run_number, runs)

    def _take_run_number(self, runs: int) -> int:
        number = int(self.random[1])
        self.random[1] = number + runs
        return number

    def return_run_number(self, number: int, runs: int = 1) -> None:
        """A run that failed leaves the random state as it was, unless another run has drawn since."""
        self.lock.brief(self._return_run_number, number, runs)

    def _return_run_number(self, number: int, runs: int) -> None:
        if self.random[1] == number + runs:
            self.random[1] = number


def _signed(seed: int) -> int:
    return seed - 2**64 if seed >= 2**63 else seed


def variable_key(graph: Graph, variable: Tensor) -> str | None:
    """The name of a variable of ``graph``; None for every other tensor."""
    if variable.op.graph is graph and variable.op.op is VARIABLE:
        graph.settle_names()
        key: str = variable.op.attrs.key
        return key
    return None
