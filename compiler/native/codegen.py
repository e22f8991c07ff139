"""Code generation: LLVM IR text comes in, relocatable objects or their assembly go out.

The text is parsed, verified and compiled. No IR passes run: the emitters write the form that the code generator wants.
LLVM is the library that llvmlite brings; its C functions are called directly, since llvmlite's modules take longer to
import than the library to load. Together with ``native.object_loader`` this is all that needs LLVM; a program that was
kept is loaded without.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import threading
from collections.abc import Iterator, Sequence
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_void_p
from typing import Any

from staticgrad.base import config
from staticgrad.base.frozen import frozen
from staticgrad.base.phases import goes_on, phase
from staticgrad.compiler.machine.target import Target

LEVEL, QUICK_LEVEL = 2, 0  # of optimization in the code generator
SHORT = 50_000  # characters: less is not worth a second thread, some hundredths of a second
ALONE = ("wasm32", "wasm64")  # of which LLVM compiles one module at a time: several at once have hung
ASSEMBLY, OBJECT = range(2)  # what a target machine emits

_message = POINTER(c_char_p)
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {  # of llvmlite's library: result, arguments
    "InitializeNativeTarget": (None, ()),
    "InitializeNativeAsmPrinter": (None, ()),
    "InitializeAllTargetInfos": (None, ()),
    "InitializeAllTargets": (None, ()),
    "InitializeAllTargetMCs": (None, ()),
    "InitializeAllAsmPrinters": (None, ()),
    "GetProcessTriple": (None, (_message,)),
    "GetTargetFromTriple": (c_void_p, (c_char_p, _message)),
    # target, triple, CPU, features, level, relocation model, code model, prints, is just in time, name of the ABI
    "CreateTargetMachine": (c_void_p, (c_void_p, *[c_char_p] * 3, c_int, *[c_char_p] * 2, c_int, c_int, c_char_p)),
    "DisposeTargetMachine": (None, (c_void_p,)),
    "CreateTargetMachineData": (c_void_p, (c_void_p,)),
    "CopyStringRepOfTargetData": (None, (c_void_p, _message)),
    "DisposeTargetData": (None, (c_void_p,)),
    "ContextCreate": (c_void_p, ()),
    "ContextDispose": (None, (c_void_p,)),
    "ParseAssembly": (c_void_p, (c_void_p, c_char_p, _message)),
    "DisposeModule": (None, (c_void_p,)),
    "SetTarget": (None, (c_void_p, c_char_p)),
    "SetDataLayout": (None, (c_void_p, c_char_p)),
    "VerifyModule": (ctypes.c_bool, (c_void_p, _message)),
    "TargetMachineEmitToMemory": (c_void_p, (c_void_p, c_void_p, c_int, _message)),
    "GetBufferStart": (c_void_p, (c_void_p,)),
    "GetBufferSize": (c_size_t, (c_void_p,)),
    "DisposeMemoryBuffer": (None, (c_void_p,)),
    "DisposeString": (None, (c_char_p,)),
}

lock = threading.RLock()  # held by who uses LLVM, also for the threads that help

if hasattr(os, "register_at_fork"):  # a fork waits until no other thread is inside LLVM, whose locks its child has
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


class _Library:
    """LLVM's functions, by the names that llvmlite gives them without their prefix."""

    def __init__(self) -> None:
        import llvmlite
        from llvmlite.utils import get_library_name

        library = ctypes.CDLL(os.path.join(os.path.dirname(llvmlite.__file__), "binding", get_library_name()))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, f"LLVMPY_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    @contextlib.contextmanager
    def message(self) -> Iterator[c_char_p]:
        """Memory for a text that LLVM gives back."""
        text = c_char_p()
        try:
            yield text
        finally:
            self.DisposeString(text)


@functools.cache
def _llvm() -> _Library:
    """The library, with this machine's target."""
    library = _Library()
    library.InitializeNativeTarget()
    library.InitializeNativeAsmPrinter()
    return library


@functools.cache
def _llvm_for_others() -> _Library:
    """The library, with the targets of all machines."""
    library = _llvm()
    library.InitializeAllTargetInfos()
    library.InitializeAllTargets()
    library.InitializeAllTargetMCs()
    library.InitializeAllAsmPrinters()
    return library


class TargetMachine:
    """The code generator for a target. It is for the triple of the target, if it has one, else for this machine's, or
    for Linux where the target is of another architecture."""

    def __init__(self, target: Target, quick: bool = False) -> None:
        isa = target.isa
        self._llvm = llvm = _llvm() if target.is_native else _llvm_for_others()
        self.triple = self.triple_of(target).encode()
        names = (self.triple, isa.cpu.encode(), isa.features.encode())
        level = QUICK_LEVEL if quick else LEVEL
        self.address = llvm.CreateTargetMachine(_found(llvm, self.triple), *names, level, isa.relocation.encode(),
                                                b"small", 0, 0, isa.abi.encode())  # fmt: skip
        if not self.address:
            raise RuntimeError(f"LLVM has no code generator for {target.name}")
        self.layout = _layout_text(llvm, self.address)

    @staticmethod
    def triple_of(target: Target) -> str:
        """LLVM's name of the machine for which code is made."""
        isa = target.isa
        return _process_triple() if target.is_native else isa.triple or f"{isa.arch}-unknown-linux-gnu"

    def __del__(self) -> None:
        if getattr(self, "address", None):
            self._llvm.DisposeTargetMachine(self.address)


def _process_triple() -> str:
    llvm = _llvm()
    with llvm.message() as triple:
        llvm.GetProcessTriple(triple)
        return (triple.value or b"").decode()


def _found(llvm: _Library, triple: bytes) -> Any:
    """LLVM's target of a triple."""
    with llvm.message() as message:
        found = llvm.GetTargetFromTriple(triple, message)
        if not found:
            raise RuntimeError(_text(message))
        return found


def _layout_text(llvm: _Library, machine: int) -> bytes:
    """The layout of data on a machine, as modules say it."""
    data = llvm.CreateTargetMachineData(machine)
    try:
        with llvm.message() as text:
            llvm.CopyStringRepOfTargetData(data, text)
            return text.value or b""
    finally:
        llvm.DisposeTargetData(data)


@frozen
class DataLayout:
    """The bytes of an address, and the order of bytes in a number."""

    pointer_bytes: int
    is_big_endian: bool


def layout_of(triple: str) -> DataLayout:
    """The layout of data on the machine of a triple.

    Raises:
        RuntimeError: LLVM knows no such machine, or has no code generator for it.
    """
    with lock:
        llvm, name = _llvm_for_others(), triple.encode()
        found = _found(llvm, name)
        machine = llvm.CreateTargetMachine(found, name, b"", b"", LEVEL, b"pic", b"small", 0, 0, b"")
        if not machine:
            raise RuntimeError("no code generator")
        try:
            parts = _layout_text(llvm, machine).decode().split("-")
        finally:
            llvm.DisposeTargetMachine(machine)
    bits = next((int(part.split(":")[1]) for part in parts if re.match("p0?:", part)), 64)
    return DataLayout(bits // 8, parts[0] == "E")


@functools.cache
def _kept_machine(target: Target, quick: bool = False) -> TargetMachine:
    return TargetMachine(target, quick)


def _text(message: c_char_p) -> str:
    return (message.value or b"").decode(errors="replace")


def objects(texts: Sequence[str], target: Target, *, quick: bool | Sequence[bool] = False) -> tuple[bytes, ...]:
    """Relocatable objects of modules. Several modules are compiled side by side, by a thread for each processor that
    this process has cores, where LLVM allows it. ``quick`` says of all or of each whether it is made without
    optimization.

    Raises:
        RuntimeError: malformed text; with LLVM's message.
    """
    levels = [quick] * len(texts) if isinstance(quick, bool) else quick
    with lock:
        if len(texts) <= 1 or sum(map(len, texts)) < SHORT or target.isa.arch in ALONE:
            each = zip(texts, levels, strict=True)
            return tuple(_compiled(text, _kept_machine(target, level), OBJECT) for text, level in each)
        return _side_by_side(texts, target, levels)


def objects_aside(texts: Sequence[str], target: Target) -> list[bytes]:
    """``objects``, one after the other while other threads compile: by a code generator of its own."""
    machine = TargetMachine(target)
    return [_compiled(text, machine, OBJECT) for text in texts]


def assembly(texts: Sequence[str], target: Target) -> str:
    """The machine code of modules as text, one after the other."""
    with lock:
        return "\n".join(_compiled(text, _kept_machine(target), ASSEMBLY).decode() for text in texts)


def exports(texts: Sequence[str]) -> tuple[str, ...]:
    """The names of the functions that modules define for others than each other."""
    return tuple(
        name for text in texts for name in re.findall(r"^define (?!internal|hidden)[^@]*@([\w.]+)", text, re.MULTILINE)
    )


@phase("machine code")
def _side_by_side(texts: Sequence[str], target: Target, levels: Sequence[bool]) -> tuple[bytes, ...]:
    from concurrent.futures import ThreadPoolExecutor

    def compiled(text: str, level: bool) -> bytes:
        return _compiled(text, TargetMachine(target, level), OBJECT)

    threads = ThreadPoolExecutor(min(config.available_cores(), len(texts)))
    try:
        made = []
        for code in threads.map(compiled, texts, levels):
            made.append(code)
            goes_on()
        return tuple(made)
    finally:
        threads.shutdown(cancel_futures=True)  # what an exception ends here does not begin the rest


def _compiled(text: str, machine: TargetMachine, kind: int) -> bytes:
    """The object or the assembly of a module. It is made in a context of its own: LLVM's global one keeps every type
    and constant for ever, and as no two share one, several are compiled at once ("Threads and the LLVMContext", LLVM
    Programmer's Manual)."""
    llvm = _llvm()
    context = llvm.ContextCreate()
    try:
        module = _parsed(text, context, machine)
        try:
            return _emitted(module, machine, kind)
        finally:
            llvm.DisposeModule(module)
    finally:
        llvm.ContextDispose(context)


@phase("parse LLVM")
def _parsed(text: str, context: int, machine: TargetMachine) -> int:
    """The address of the module of a text, verified."""
    llvm = _llvm()
    with llvm.message() as message:
        module: int | None = llvm.ParseAssembly(context, text.encode(), message)
        if not module:
            raise RuntimeError(f"LLVM IR parsing error\n{_text(message)}")
        llvm.SetTarget(module, machine.triple)
        llvm.SetDataLayout(module, machine.layout)
        if not llvm.VerifyModule(module, message):
            return module
        llvm.DisposeModule(module)
        raise RuntimeError(_text(message))


@phase("machine code")
def _emitted(module: int, machine: TargetMachine, kind: int) -> bytes:
    llvm = _llvm()
    with llvm.message() as message:
        buffer = llvm.TargetMachineEmitToMemory(machine.address, module, kind, message)
        if not buffer:
            raise RuntimeError(_text(message))
    try:
        return ctypes.string_at(llvm.GetBufferStart(buffer), llvm.GetBufferSize(buffer))
    finally:
        llvm.DisposeMemoryBuffer(buffer)
