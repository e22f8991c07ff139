"""Code generation: LLVM IR text comes in, relocatable objects or their assembly go out; LLVM's loader for objects.

The text is parsed, verified and compiled. No IR passes run unless ``optimize`` asks for them: the emitters write the
form that the code generator wants. This is the one module that needs LLVM; a program that was kept is loaded without.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm

from staticgrad import config
from staticgrad.compiler.emit.target import Target
from staticgrad.phases import goes_on, phase

CODEGEN_LEVEL = 2

# LLVM through llvmlite is used by one thread at a time; library names are unique in the process.
_lock = threading.RLock()
_numbers = itertools.count()


def _before_fork() -> None:
    """Wait until no other thread is inside LLVM, whose locks a child would find held for ever; llvmlite's own lock is
    held by finalizers, too."""
    _lock.acquire()
    _llvmlites_lock.__enter__()


def _after_fork() -> None:
    _llvmlites_lock.__exit__(None, None, None)
    _lock.release()


_llvmlites_lock: Any = getattr(llvm.ffi.lib, "_lock", contextlib.nullcontext())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


@functools.cache
def _initialized() -> bool:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return True


@functools.cache
def target_machine(target: Target) -> llvm.TargetMachine:
    """The code generator for ``target`` on this machine's triple, with position independent code."""
    return _new_machine(target)


def _new_machine(target: Target) -> llvm.TargetMachine:
    _initialized()
    triple = llvm.Target.from_triple(llvm.get_process_triple())
    return triple.create_target_machine(
        cpu=target.isa.cpu, features=target.isa.features, opt=CODEGEN_LEVEL, reloc="pic", codemodel="small"
    )


def objects(
    texts: Sequence[str], target: Target, *, optimize: bool = False
) -> tuple[tuple[bytes, ...], tuple[str, ...]]:
    """Relocatable objects of modules, and the functions that they export. Several modules are compiled side by side by
    as many threads as this process has cores.

    Raises:
        RuntimeError: malformed text; with LLVM's message.
    """
    with _lock:
        machines = [target_machine(target)] if len(texts) == 1 else [_new_machine(target) for _ in texts]
        modules = [_parsed(text, machine, optimize=optimize) for text, machine in zip(texts, machines, strict=True)]
        exports = tuple(f.name for module in modules for f in module.functions if _is_export(f))
        return _emitted(machines, modules), exports


def _is_export(function: llvm.ValueRef) -> bool:
    """True if a function is defined, for others than this program's modules."""
    is_external = function.linkage is llvm.Linkage.external and function.visibility is llvm.Visibility.default
    return is_external and not function.is_declaration


@phase("machine code")
def _emitted(machines: Sequence[llvm.TargetMachine], modules: Sequence[llvm.ModuleRef]) -> tuple[bytes, ...]:
    if len(modules) == 1:
        return (bytes(machines[0].emit_object(modules[0])),)
    from concurrent.futures import ThreadPoolExecutor

    threads = ThreadPoolExecutor(min(config.available_cores(), len(modules)))
    try:
        made = []
        for code in threads.map(_emitted_unlocked, machines, modules):
            made.append(code)
            goes_on()
        return tuple(made)
    finally:
        threads.shutdown(cancel_futures=True)  # what an exception ends here does not begin the rest


def _emitted_unlocked(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
    """The object of a module; as each has a context of its own, LLVM compiles several of them at once ("Threads and the
    LLVMContext", LLVM Programmer's Manual), but llvmlite holds a lock during each call; so LLVM is called directly."""
    library = llvm.ffi.lib
    with llvm.ffi.OutputString() as message:
        buffer = _emitter()(machine, module, True, message)
        if not buffer:
            raise RuntimeError(str(message))
    try:
        return ctypes.string_at(library.LLVMPY_GetBufferStart(buffer), library.LLVMPY_GetBufferSize(buffer))
    finally:
        library.LLVMPY_DisposeMemoryBuffer(buffer)


@functools.cache
def _emitter() -> Callable[..., Any]:
    locked = llvm.ffi.lib.LLVMPY_TargetMachineEmitToMemory
    emit = ctypes.CDLL(llvm.ffi.lib._name).LLVMPY_TargetMachineEmitToMemory
    emit.argtypes, emit.restype = locked.argtypes, locked.restype
    return emit


def assembly(texts: Sequence[str], target: Target, *, optimize: bool = False) -> str:
    """The machine code of modules as text, one after the other."""
    with _lock:
        machine = target_machine(target)
        return "\n".join(str(machine.emit_assembly(_parsed(text, machine, optimize=optimize))) for text in texts)


@phase("parse LLVM")
def _parsed(text: str, machine: llvm.TargetMachine, *, optimize: bool = False) -> llvm.ModuleRef:
    """The module of a text, in a context of its own: LLVM's global one keeps every type and constant for ever."""
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    if optimize:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    return module


@functools.cache
def _jit() -> llvm.LLJIT:
    """The process's one loader; it outlives every library, since closing it would free their code."""
    _initialized()
    return llvm.create_lljit_compiler()


class LoadedObjects:
    """Relocatable objects in memory: ``address`` of each of ``exports``. The code lives as long as this does."""

    def __init__(self, contents: Sequence[bytes], exports: Sequence[str]) -> None:
        with _lock:
            builder = llvm.JITLibraryBuilder().add_current_process()
            for content in contents:
                builder.add_object_img(content)
            for name in exports:
                builder.export_symbol(name)
            self._tracker = builder.link(_jit(), f"staticgrad.{next(_numbers)}")
            self._addresses = {name: int(self._tracker[name]) for name in exports}

    def address(self, name: str) -> int:
        """The address of an exported function; ``KeyError`` for any other name."""
        return self._addresses[name]
