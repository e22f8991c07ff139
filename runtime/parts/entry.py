"""The fast entry: a Python function in machine code that checks arrays, makes results and calls a program.

Calling a small program through ctypes costs more than running it. So one function is made, once in a process, with
CPython's own calling convention (``METH_FASTCALL | METH_KEYWORDS``). It is driven by a *descriptor*, a table of 64-bit
words that is its ``self``: what arrays to expect, where their addresses go, what to allocate, what to call. Numbers
of Python and tensors of other frameworks are read where they lie (``foreign``). Whatever is not exactly as
expected — another shape, a list, an array to be cast, a lock that is held, a closed session — is left to the
executable's ``slow`` path in Python, which converts it or raises.

A descriptor's memory is one call's at a time: ``busy`` says that it is in use, and a second call goes the slow way,
which has memory of its own. Programs that touch state take the session's lock (``locks``); those that keep the GIL look
whether it is free (its gate is zero) instead; where there is no GIL, all take it. What else than variables a run
changes (their versions, the run number, which gradients are there) is changed here, so that no exception comes between.

It reads fields of array, list, tuple and dict objects directly. Their offsets are not asked for by version: they are
probed on real objects (``descriptors``), once in a process, and where one differs (another interpreter, a layout to
come) there is no fast entry, and every call goes the way through Python.

The file of an exported program carries the function (``entry_image``), so that loaded programs have it without LLVM.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staticgrad.base.image import CodeImage
from staticgrad.compiler.machine.target import GENERIC, Target, current_target
from staticgrad.compiler.native.module import NativeModule, machine_code
from staticgrad.runtime.parts import locks, results
from staticgrad.runtime.parts.descriptors import (
    ArraySpec,
    Descriptor,
    EntryRuntime,
    EntrySpec,
    entry_of,
    feed_records,
    layout_is_known,
    leaf_records,
)
from staticgrad.runtime.parts.entry_words import RECORD, EntryWord
from staticgrad.runtime.parts.machinery import once
from staticgrad.runtime.parts.vectorcall import IS_FREE_THREADED

_UNKNOWN = np.zeros((256, RECORD), np.int64)  # records that no array has, for the feeds of a sized entry
_UNKNOWN_ADDRESS = _UNKNOWN.ctypes.data


def _text(target: Target) -> str:
    from staticgrad.runtime.parts import entry_text

    return entry_text.text(target)


def _key() -> str:
    """The name under which machine code of the entry is kept: it differs by interpreter."""
    return f"entry for {sys.implementation.cache_tag}{' without the GIL' * IS_FREE_THREADED}"


def _handler(nbytes: int) -> object | None:
    return results.handler() if nbytes >= results.RECYCLED_FROM else None


@once
def _machinery() -> EntryRuntime | None:
    if not layout_is_known():
        return None
    target = current_target()
    native = NativeModule(functools.partial(_text, target), target, key=_key())
    return EntryRuntime(native, locks.addresses(), _handler)


@once
def entry_image() -> CodeImage | None:
    """The machine code of entries for other processes, whose interpreters have objects with a head as this one's; None
    where there are no images of code."""
    code = machine_code(_text(GENERIC), GENERIC)
    return code if isinstance(code, CodeImage) else None


def order() -> None:
    """Let others see what was written before, before anything that follows is read."""
    machinery = _machinery()
    if machinery is not None:  # else nothing is called in machine code
        machinery.fence()


def forward_address() -> int:
    """The address of the function by which objects are called (``vectorcall``); 0 where there are no entries
    either."""
    machinery = _machinery()
    return 0 if machinery is None else machinery.forward


def make_entry(spec: EntrySpec) -> tuple[Callable[..., Any], Descriptor] | None:
    """A Python function for ``spec`` and its descriptor; None where this Python or NumPy has another layout, a call is
    too large, or machine code cannot take the session's lock."""
    machinery = _machinery()
    return None if machinery is None else entry_of(spec, machinery)


def closed(words: Descriptor) -> bool:
    """Let an entry know no arrays, so that every call goes the slow way; False, and it stays as it is, where one is
    running. Each step is one to other threads, and a call says that it runs before it looks at the word for the feeds:
    of the two at least one sees the other."""
    before = words[EntryWord.FEED_RECORDS]
    words[EntryWord.FEED_RECORDS] = _UNKNOWN_ADDRESS
    if IS_FREE_THREADED:
        order()
    if words[EntryWord.BUSY]:
        words[EntryWord.FEED_RECORDS] = before
        return False
    return True


class Records:
    """The records of the arrays of a call, and their addresses."""

    __slots__ = ("feeds", "kept", "leaves")

    def __init__(self, feeds: Sequence[ArraySpec], leaves: Sequence[ArraySpec]) -> None:
        (given, given_dims), (made, made_dims) = feed_records(feeds), leaf_records(leaves, _handler)
        self.feeds, self.leaves = given.ctypes.data, made.ctypes.data
        self.kept = given, given_dims, made, made_dims


def follow(words: Descriptor, other: Descriptor) -> None:
    """Let calls that find ``words`` in use take those of ``other``, a frame for the same arrays."""
    words.kept += (other,)
    words[EntryWord.NEXT] = other.ctypes.data


def open_for(words: Descriptor, records: Records) -> None:
    """Let an entry that was ``closed`` know these arrays, of the number that it was made for."""
    words.arrays.append(records)
    words[EntryWord.LEAF_RECORDS] = records.leaves
    words[EntryWord.FEED_RECORDS] = records.feeds
