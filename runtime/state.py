"""The state of one session: variables, accumulated gradients, the run number, and the lock that guards them.

Every variable lies in the same memory for as long as the session lives, 64-byte aligned and C-contiguous: compiled
programs hold its address and write in place. Those that a program needs first lie side by side, since memory that is
new to the process is found faster in a few large pages than in many small ones. All writes are counted, and the version
of a variable is the number of the last one that changed it.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from staticgrad.errors import GradientError, StaticGradError
from staticgrad.graph import Graph, Tensor
from staticgrad.ops.sources import VariableAttributes
from staticgrad.ops.variables import Fixed
from staticgrad.optable import Array
from staticgrad.types import Shape, TensorType, sizes

ALIGNMENT = 64


def aligned_empty(shape: Shape, dtype: np.dtype) -> Array:
    """An uninitialised C-contiguous array whose memory begins at a multiple of 64 bytes."""
    shape = sizes(shape)
    nbytes = dtype.itemsize
    for size in shape:
        nbytes *= size
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes].view(dtype).reshape(shape)


def side_by_side(types: Sequence[TensorType]) -> list[Array]:
    """Such arrays in one piece of memory."""
    from staticgrad.runtime.results import workspace

    ends = list(itertools.accumulate(-(-type_.nbytes // ALIGNMENT) * ALIGNMENT for type_ in types))
    memory = workspace(ends[-1] if ends else 0)
    return [
        memory[start : start + type_.nbytes].view(type_.dtype).reshape(sizes(type_.shape))
        for type_, start in zip(types, [0, *ends], strict=False)
    ]


def first_value(attrs: VariableAttributes, seed: int) -> Array:
    """A variable's value before any write: from the session's seed and the variable's name, and nothing else. It may be
    memory of the declaration, which nobody may change, or one number that stands in every place."""
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


class StateLock:
    """Writers take turns; readers see no half-written value.

    ``brief`` is for everything done in Python and for short readers; ``shared`` for long readers, which run side by
    side; ``exclusive`` for writers and for programs that call back into Python. The thread that holds it may take it
    again, since a callback may run the session. A shared reader never calls back, so nobody waits for a lock while a
    callback needs it.

    ``gate`` counts the holders of every kind, in memory that compiled entries read: while it is zero and the
    interpreter's lock is held, nobody else is inside.
    """

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        self.idle = threading.Condition(self.mutex)
        self.readers = 0
        self.gate = np.zeros(1, np.int64)
        self._brief = _Brief(self)
        self._shared = _Shared(self)
        self._exclusive = _Exclusive(self)

    def brief(self) -> contextlib.AbstractContextManager[None]:
        return self._brief

    def shared(self) -> contextlib.AbstractContextManager[None]:
        return self._shared

    def exclusive(self) -> contextlib.AbstractContextManager[None]:
        return self._exclusive


class _Hold(contextlib.AbstractContextManager[None]):
    def __init__(self, lock: StateLock) -> None:
        self._lock = lock
        self._gate = lock.gate.data  # whose items are read and written faster than an array's


class _Brief(_Hold):
    def __enter__(self) -> None:
        self._lock.mutex.acquire()
        self._gate[0] += 1

    def __exit__(self, *_: object) -> None:
        self._gate[0] -= 1
        self._lock.mutex.release()


class _Shared(_Hold):
    def __enter__(self) -> None:
        with self._lock.mutex:
            self._gate[0] += 1
            self._lock.readers += 1

    def __exit__(self, *_: object) -> None:
        lock = self._lock
        with lock.mutex:
            self._gate[0] -= 1
            lock.readers -= 1
            if not lock.readers:
                lock.idle.notify_all()


class _Exclusive(_Hold):
    def __enter__(self) -> None:
        lock = self._lock
        lock.mutex.acquire()
        try:
            while lock.readers:
                lock.idle.wait()
        except BaseException:  # Ctrl-C while waiting
            lock.mutex.release()
            raise
        self._gate[0] += 1

    def __exit__(self, *_: object) -> None:
        self._gate[0] -= 1
        self._lock.mutex.release()


class Store:
    """Variables and gradients of one session on one graph."""

    def __init__(self, graph: Graph, seed: int) -> None:
        if not -(2**63) <= seed < 2**64:
            raise StaticGradError(f"a seed is an int of 64 bits, not {seed}")
        self.graph = graph
        self.lock = StateLock()
        # Read and written by compiled entries, hence in memory of its own: the seed's 64 bits, and how many earlier
        # runs took random numbers; whether the session is closed; how many writes of variables there were.
        self.random = np.array([_signed(seed), 0], np.int64)
        self.closed = np.zeros(1, np.int64)
        self.write_count = np.zeros(1, np.int64)
        self._initializing = threading.RLock()  # not the state's lock: who compiles may hold it, and waits for nobody
        self._values: dict[str, Array] = {}
        self._versions: dict[str, Array] = {}
        self._gradients: dict[str, Array] = {}
        self._forgotten: dict[str, Array] = {}  # the memory of gradients that were zeroed

    def copy(self) -> Store:
        """Variables, gradients and random state as they are now, in memory of their own."""
        other = Store(self.graph, self.seed)
        with self.lock.brief():
            other.random[:] = self.random
            other.write_count[:] = self.write_count
            for key, value in self._values.items():
                array = other._values[key] = aligned_empty(value.shape, value.dtype)
                array[...] = value
                other._versions[key] = self._versions[key].copy()
            other._gradients = {key: value.copy() for key, value in self._gradients.items()}
        return other

    # -- variables --------------------------------------------------------------------------------------------------

    def attributes(self, key: str) -> VariableAttributes:
        """What was declared about a variable; ``KeyError`` where the graph has none of that name."""
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
        with self._initializing:
            new = [self.attributes(key) for key in dict.fromkeys(keys) if key not in self._values]
            arrays = side_by_side([TensorType(attrs.shape, attrs.dtype) for attrs in new])
            for attrs, array in zip(new, arrays, strict=True):
                array[...] = first_value(attrs, self.seed)
                self._versions[attrs.key] = np.zeros(1, np.int64)
                self._values[attrs.key] = array

    def read(self, key: str) -> Array:
        """A copy of a variable's value."""
        array = self.array(key)
        with self.lock.brief():
            return array.copy()

    @property
    def writes(self) -> int:
        """How many writes of variables there were."""
        return int(self.write_count[0])

    def version(self, key: str) -> int:
        """The number of the last write that changed the variable; 0 where there was none."""
        return int(self.version_word(key)[0])

    def version_word(self, key: str) -> Array:
        """The version's own memory."""
        self.array(key)
        return self._versions[key]

    def written(self, keys: tuple[str, ...]) -> None:
        """Count a write of each of ``keys``."""
        for key in keys:
            self.write_count[0] += 1
            self._versions[key][0] = self.write_count[0]

    def write(self, values: Mapping[str, Array]) -> None:
        """Write several variables, all or none."""
        arrays = {key: self.array(key) for key in values}
        with self.lock.exclusive():
            for key, array in arrays.items():
                array[...] = values[key]
            self.written(tuple(arrays))

    # -- gradients --------------------------------------------------------------------------------------------------

    def gradient(self, key: str) -> Array | None:
        """A copy of an accumulated gradient, None where there is none yet."""
        with self.lock.brief():
            array = self._gradients.get(key)
            return None if array is None else array.copy()

    def has_gradient(self, key: str) -> bool:
        return key in self._gradients

    def gradient_memory(self, key: str, type_: TensorType) -> tuple[Array, bool]:
        """Zeros or the sum so far for a program to add to, and whether it is new. Memory that ``zero_gradients`` has
        left is taken again.

        Raises:
            GradientError: the sum so far is that of another shape (of a tensor with a free size).
        """
        array = self._gradients.get(key)
        if array is not None:
            if array.shape != type_.shape:
                raise GradientError(
                    f"the gradient of {key.rpartition(':')[0]!r} does not add to those accumulated before: call"
                    f" zero_grad() when sizes change\n  expected shape {array.shape}\n  actual   shape {type_.shape}"
                )
            return array, False
        array = self._forgotten.pop(key, None)
        if array is None or array.shape != type_.shape:
            array = aligned_empty(type_.shape, type_.dtype)
        array[...] = 0
        return array, True

    def keep_gradients(self, arrays: Mapping[str, Array]) -> None:
        """Let these be the sums so far; a backward that a callback has called may have made some already."""
        for key, array in arrays.items():
            known = self._gradients.setdefault(key, array)
            if known is not array:
                known += array

    def add_gradients(self, sums: Mapping[str, Array]) -> None:
        """Add to accumulated gradients."""
        with self.lock.exclusive():
            memory = {key: self.gradient_memory(key, TensorType(v.shape, v.dtype)) for key, v in sums.items()}
            for key, (array, _) in memory.items():
                array += sums[key]
            self.keep_gradients({key: array for key, (array, fresh) in memory.items() if fresh})

    def set_gradient(self, key: str, value: Array | None) -> None:
        """Let a copy of ``value`` be the sum so far, or None be none."""
        with self.lock.exclusive():
            if (before := self._gradients.pop(key, None)) is not None:
                self._forgotten[key] = before
            if value is not None:
                array, _ = self.gradient_memory(key, TensorType(value.shape, value.dtype))
                array[...] = value
                self._gradients[key] = array

    def zero_gradients(self) -> None:
        with self.lock.exclusive():
            self._forgotten.update(self._gradients)
            self._gradients.clear()

    # -- random numbers ---------------------------------------------------------------------------------------------

    @property
    def seed(self) -> int:
        return int(self.random[0])

    @property
    def runs_drawn(self) -> int:
        """How many earlier runs took random numbers."""
        return int(self.random[1])

    def set_random(self, seed: int, runs_drawn: int) -> None:
        with self.lock.exclusive():
            self.random[:] = _signed(seed), runs_drawn

    def take_run_number(self) -> int:
        """The number of this run among those that draw."""
        with self.lock.brief():
            number = int(self.random[1])
            self.random[1] = number + 1
            return number

    def return_run_number(self, number: int) -> None:
        """A run that failed leaves the random state as it was, unless another run has drawn since."""
        with self.lock.brief():
            if self.random[1] == number + 1:
                self.random[1] = number


def _signed(seed: int) -> int:
    return seed - 2**64 if seed >= 2**63 else seed


def variable_key(graph: Graph, variable: Tensor) -> str | None:
    """The name of a variable of ``graph``; None for every other tensor."""
    if variable.op.graph is graph and variable.op.op.name == "variable":
        graph.settle_names()
        key: str = variable.op.attrs.key
        return key
    return None
