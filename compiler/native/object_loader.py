"""LLVM's own loader: relocatable objects come in, addresses of their functions go out.

It takes the objects of every system, also of those for which there are no images (``base.image``).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm

from staticgrad.base.config import host_arch
from staticgrad.base.image import ExecutionRefusedError
from staticgrad.compiler.native.codegen import lock

_numbers = itertools.count()  # names of libraries are unique in the process


def _before_fork() -> None:
    """Wait for llvmlite's own lock, which finalizers hold, too: a child would find it held for ever."""
    _llvmlites_lock.__enter__()


def _after_fork() -> None:
    _llvmlites_lock.__exit__(None, None, None)


_llvmlites_lock: Any = getattr(llvm.ffi.lib, "_lock", contextlib.nullcontext())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


@functools.cache
def _jit() -> llvm.LLJIT:
    """The process's one loader; it outlives every library, since closing it would free their code. LLVM's older linker
    lays the sections of an object wherever there is room, where aarch64's code may not reach them: it aborts then."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler(use_jit_link=host_arch() == "aarch64")


class LoadedObjects:
    """Relocatable objects in memory: ``address`` of each of ``exports``. The code lives as long as this does.

    Raises:
        ExecutionRefusedError: the system refuses memory for machine code.
    """

    def __init__(self, contents: Sequence[bytes], exports: Sequence[str]) -> None:
        with lock:
            builder = llvm.JITLibraryBuilder().add_current_process()
            for content in contents:
                builder.add_object_img(content)
            for name in exports:
                builder.export_symbol(name)
            try:
                self._tracker = builder.link(_jit(), f"staticgrad.{next(_numbers)}")
            except RuntimeError as error:  # LLVM says no more, but that code takes from elsewhere is known to be there
                raise ExecutionRefusedError.of([f"LLVM's loader: {error}"]) from error
            self._addresses = {name: int(self._tracker[name]) for name in exports}

    def address(self, name: str) -> int:
        """The address of an exported function; ``KeyError`` for any other name."""
        return self._addresses[name]
