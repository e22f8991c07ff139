"""A loaded program: entries that are called with arrays, and the state that they share. NumPy is all that it needs.

Input: a file of ``program_file``. Output: a ``LoadedProgram``. Its code is mapped once and shared by all copies; each
copy is an instance with a state of its own. Several threads may call (``calls``); those of entries that write the state
take turns. While the code runs, the GIL is released, unless it takes a few microseconds.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from staticgrad.base import files
from staticgrad.base.addresses import aligned_empty, data_address
from staticgrad.base.boundary import boundary, end_at_user
from staticgrad.base.errors import FetchError, FormatError, StaticGradError
from staticgrad.base.tables import byte_text
from staticgrad.base.types import integer, sizes
from staticgrad.graph.optable import Array
from staticgrad.runtime.export import program_file
from staticgrad.runtime.export.calls import EntryCalls, EntryCode
from staticgrad.runtime.export.interface import EXTREMES, NamedType, StateLayout
from staticgrad.runtime.export.program_file import ProgramFile
from staticgrad.runtime.export.sharing import StateLock
from staticgrad.runtime.files import checkpoint_file
from staticgrad.runtime.parts import vectorcall
from staticgrad.runtime.running.binding import Argument, as_array

_BYTE = np.dtype(np.uint8)


def load(path: str | os.PathLike[str], *, digest: str | None = None) -> LoadedProgram:
    """Load a program that ``export(path, format="program")`` wrote. NumPy is all that has to be installed.

    Of several targets the widest that the processor runs is taken, or the one that ``STATICGRAD_TARGET`` names.

    Args:
        path: the file.
        digest: its SHA-256 in 64 hexadecimal digits, which exporting it and ``staticgrad info FILE`` tell. A program
            is code that runs with your rights: without a digest it is refused if another user than you and root may
            have written the file.

    Raises:
        FormatError: another file, a damaged one, one of a later version, for another machine, or one that others may
            have written.
        OSError: the file can't be read.

    Example:
        >>> sg.load("no-such-file")
        Traceback (most recent call last):
            ...
        FileNotFoundError: [Errno 2] No such file or directory: 'no-such-file'
    """
    name = files.path_of(path)
    code = ProgramCode(program_file.parse(program_file.read(name, digest), name), name)
    return LoadedProgram(ProgramInstance(code))


# -- code, shared by copies -------------------------------------------------------------------------------------------


class MappedCode(Protocol):
    """Code in memory, which lives as long as this does."""

    def address(self, name: str) -> int: ...


class ProgramCode:
    """The code of a file, mapped, and the file itself, so that the program can be sent elsewhere."""

    def __init__(self, file: ProgramFile, name: str, image: MappedCode | None = None) -> None:
        """``name`` is for messages; ``image`` the code where it is mapped already."""
        self.file = file
        self.target = file.interface.target
        if image is None:
            self.target, image = program_file.load_image(file, name)
        self.image = image  # functions live as long as that
        self.runtime = program_file.load_runtime(file)
        self.entries = {entry.name: EntryCode(entry, image.address(entry.name)) for entry in file.interface.entries}

    @property
    def layout(self) -> StateLayout:
        return self.file.interface.state


# -- an instance: code and a state ------------------------------------------------------------------------------------


class ProgramInstance:
    """Code and a state of its own, which the lock guards. Pickled it is the file and the state as it is."""

    def __init__(self, code: ProgramCode, content: bytes | memoryview | None = None) -> None:
        self.code = code
        self.lock = StateLock()
        self.memory = aligned_empty((code.layout.nbytes,), _BYTE)
        self.address = data_address(self.memory)
        self.memory[:] = np.frombuffer(code.file.initial if content is None else content, _BYTE)
        self.arrays = {
            x.name: self.memory[x.offset : x.offset + x.type.nbytes].view(x.type.dtype).reshape(sizes(x.type.shape))
            for x in code.layout.arrays
        }
        self.random = self.memory[:EXTREMES].view(np.int64) if code.layout.draws else None

    def __reduce__(self) -> tuple[Any, ...]:
        return _instance, (self.code.file.data, self.content())

    def content(self) -> bytes:
        """The whole state as it is."""
        with self.lock.reading():
            return self.memory.tobytes()


def _instance(data: bytes, content: bytes) -> ProgramInstance:
    """An instance that was pickled."""
    code = ProgramCode(program_file.parse(data, "a pickled program"), "a pickled program")
    if len(content) != code.layout.nbytes:
        raise FormatError(f"a pickled program: {len(content)} bytes of state, expected {code.layout.nbytes}")
    return ProgramInstance(code, content)


# -- what users hold --------------------------------------------------------------------------------------------------


class LoadedEntry(vectorcall.Forwarding):
    """A function of a loaded program. ``entry(*arrays)`` runs it; ``entry(*arrays, out=nest)`` writes results into
    given arrays.

    Arrays are given in the order of ``feeds`` and converted as those of an executable are. Results come back in the
    nest of the fetches that were exported, None in the place of ops, in fresh arrays. May be called from several
    threads; entries that write the state take turns. ``entry(…)`` is, where possible, a function in machine code that
    the file carries (``runtime.export.calls``).

    Raises:
        FeedError: (when called) a wrong number of arrays, a wrong shape or dtype, an ``out`` that results can't be
            written to.
        StaticGradError: (when called) a check of the program failed; the state is as it was.
    """

    __slots__ = ("__call__", "__weakref__", "_calls", "_code", "_instance")

    def __init__(self, instance: ProgramInstance, name: str) -> None:
        """Entries are made by the program that has them."""
        self._instance = instance
        self._code = instance.code.entries[name]
        self._calls = EntryCalls(self._code, instance.lock, instance.address, instance)
        runtime = instance.code.runtime
        function = None if runtime is None else self._calls.fast(runtime)
        self.__call__: Callable[..., Any] = self._calls.run if function is None else function
        if runtime is not None and function is not None:
            vectorcall.start(self, runtime.forward, _ENTRY_SLOT)

    def __reduce__(self) -> tuple[Any, ...]:
        return LoadedEntry, (self._instance, self.name)

    @property
    def name(self) -> str:
        """Its name, which is that of the function in C."""
        return self._code.entry.name

    @property
    def feeds(self) -> tuple[NamedType, ...]:
        """The arrays that it takes, in order."""
        return self._code.entry.feeds

    @property
    def results(self) -> tuple[NamedType, ...]:
        """The arrays that it gives, in the order of its nest."""
        return self._code.entry.results

    def __repr__(self) -> str:
        given, found = (
            ", ".join(f"{x.name}: {x.type}" for x in side) for side in (self._code.feeds, self._code.results)
        )
        return f"<{type(self).__name__} {self.name}({given}) -> {found or None}>"


def run_ready(
    entry: LoadedEntry, arrays: Sequence[Array], results: list[Array], random: tuple[int, int] | None = None
) -> None:
    """Run an entry on arrays that it can read as they are, and have it write into ``results``; nothing is checked.

    Args:
        random: the seed and the number of the run as which a program draws; no other thread may use its instance.
    """
    words = entry._instance.random
    if random is not None and words is not None:
        words[:] = _signed(random[0]), random[1]
    entry._calls.run_ready(arrays, results)


def renewed(entry: LoadedEntry) -> LoadedEntry:
    """The entry with a state of its own, which is now equal."""
    return LoadedEntry(ProgramInstance(entry._instance.code, entry._instance.content()), entry.name)


_ENTRY_SLOT = vectorcall.enable(LoadedEntry)


class LoadedProgram(vectorcall.Forwarding):
    """A program that ``sg.load`` gives: its entries by their names, and the state that they share.

    ``program["train_step"]`` or ``program.train_step`` is an entry, ``program(*arrays)`` runs the only one of a program
    that has one. ``copy()`` gives a program with a state of its own; pickled, a program takes its file and its state
    along. What unpickling runs is the pickle's: take none from those whose program you would not run.
    """

    __slots__ = ("__call__", "__weakref__", "_entries", "_instance")

    def __init__(self, instance: ProgramInstance) -> None:
        """Programs are made by ``sg.load``."""
        self._instance = instance
        self._entries = {name: LoadedEntry(instance, name) for name in instance.code.entries}
        names = ", ".join(self._entries)
        first, runtime = next(iter(self._entries.values())), instance.code.runtime
        self.__call__: Callable[..., Any] = functools.partial(_refuse, names)
        if len(self._entries) == 1:
            self.__call__ = first.__call__
        if runtime is not None:
            vectorcall.start(self, runtime.forward, _PROGRAM_SLOT)

    def __reduce__(self) -> tuple[Any, ...]:
        return LoadedProgram, (self._instance,)

    @property
    def name(self) -> str:
        """The name under which it was exported."""
        return self._instance.code.file.interface.name

    @property
    def target(self) -> str:
        """The target whose code runs, the widest of the file that this machine has."""
        return self._instance.code.target

    # -- entries ------------------------------------------------------------------------------------------------------

    @property
    def entries(self) -> Mapping[str, LoadedEntry]:
        """The entries by their names."""
        return MappingProxyType(self._entries)

    def __getitem__(self, name: str) -> LoadedEntry:
        try:
            return self._entries[name]
        except KeyError:
            raise FetchError(f"no entry {name!r}: the program has {', '.join(self._entries)}") from None

    def __getattr__(self, name: str) -> LoadedEntry:
        if name.startswith("_"):
            raise AttributeError(f"no attribute {name!r}", name=name, obj=self)
        if name not in self._entries:
            known = ", ".join(sorted({*(one for one in dir(type(self)) if not one.startswith("_")), *self._entries}))
            raise AttributeError(f"no entry {name!r}: a program has {known}", name=name, obj=self)
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._entries})

    def __repr__(self) -> str:
        size = self._instance.code.layout.nbytes
        state = f", state {byte_text(size)}" if size else ""
        return f"<{type(self).__name__} {self.name!r} for {self.target}: {', '.join(self._entries)}{state}>"

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> dict[str, Array]:
        """Copies of all variables by their names, of one moment."""
        instance = self._instance
        with instance.lock.reading():
            return {name: array.copy() for name, array in instance.arrays.items()}

    def _variable(self, name: str) -> Array:
        try:
            return self._instance.arrays[name]
        except (KeyError, TypeError):
            known = ", ".join(map(repr, self._instance.arrays)) or "none"
            raise FetchError(f"no variable {name!r}: the state of the program has {known}") from None

    @boundary
    def get(self, name: str) -> Array:
        """A copy of a variable.

        Raises:
            FetchError: there is none of that name.
        """
        array, instance = self._variable(name), self._instance
        with instance.lock.reading():
            return array.copy()

    @boundary
    def set(self, name: str, value: Any) -> None:
        """Give a variable another value.

        Raises:
            FetchError: there is none of that name.
            FeedError: another shape, or a dtype that does not cast safely.
        """
        array, instance = self._variable(name), self._instance
        types = {x.name: x.type for x in instance.code.layout.arrays}
        given = as_array(Argument(name, types[name]), value)
        with instance.lock.writing():
            array[...] = given

    @boundary
    def reset(self, *, seed: int | None = None) -> None:
        """Let the state be as it was exported.

        Args:
            seed: of random numbers, an int of 64 bits; default: the one that was exported.

        Raises:
            StaticGradError: a seed for a program that draws no random numbers, or one that is no int of 64 bits.
        """
        instance = self._instance
        if seed is not None:
            seed = integer(seed, "seed")
            if instance.random is None:
                raise StaticGradError("seed: the program draws no random numbers")
            if not -(2**63) <= seed < 2**64:
                raise StaticGradError(f"a seed is an int of 64 bits, not {seed}")
        with instance.lock.writing(whole=False):
            instance.memory[:] = np.frombuffer(instance.code.file.initial, _BYTE)
            if instance.random is not None and seed is not None:
                instance.random[0] = _signed(seed)

    def copy(self) -> LoadedProgram:
        """A program with the same code and a state of its own, which is now equal."""
        return LoadedProgram(ProgramInstance(self._instance.code, self._instance.content()))

    def __copy__(self) -> LoadedProgram:
        return self.copy()

    def __deepcopy__(self, _: dict[int, Any]) -> LoadedProgram:
        return self.copy()

    @boundary
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a checkpoint, whole or not at all: a safetensors file as ``Session.save`` writes it, with
        the random state if the program draws. A session whose graph has these variables may restore it.

        Raises:
            FormatError: the path names no regular file.
            OSError: it can't be written.
        """
        instance, place = self._instance, files.path_of(path)
        with instance.lock.reading():
            values = self.state
            random = None if instance.random is None else (int(instance.random[0]), int(instance.random[1]))
        files.replace(place, checkpoint_file.to_bytes(values, random, {}))

    @boundary
    def restore(self, path: str | os.PathLike[str]) -> None:
        """Take the state from a checkpoint that ``save`` or a session wrote; variables that the program does not have
        are left out.

        Raises:
            FormatError: a damaged or foreign file, or one that lacks a variable or has it with another shape or dtype;
                nothing has changed.
            OSError: the file can't be read.
        """
        instance, path = self._instance, files.path_of(path)
        values, notes = checkpoint_file.read(path)
        random = checkpoint_file.random_state(path, notes)
        missing = [name for name in instance.arrays if name not in values]
        if missing:
            raise FormatError(f"{path}: the file lacks {', '.join(map(repr, missing))}")
        for name, array in instance.arrays.items():
            value = values[name]
            if (value.shape, value.dtype) != (array.shape, array.dtype):
                raise FormatError(
                    f"{path}: variable {name!r}\n  expected {array.dtype.name}{list(array.shape)}"
                    f"\n  actual   {value.dtype.name}{list(value.shape)}"
                )
        with instance.lock.writing(whole=False):
            for name, array in instance.arrays.items():
                array[...] = values[name]
            if instance.random is not None and random is not None:
                instance.random[:] = _signed(random[0]), random[1]


_PROGRAM_SLOT = vectorcall.enable(LoadedProgram)


def _refuse(names: str, *values: Any, out: Any = None) -> Any:
    """The function that a call of a program of several entries comes to."""
    try:
        raise FetchError(f"a program of several entries is called by one of them: {names}")
    except FetchError as error:
        end_at_user(error)
        raise


def _signed(seed: int) -> int:
    return seed - 2**64 if seed >= 2**63 else seed
