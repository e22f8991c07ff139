"""Code generation: LLVM IR text comes in, a relocatable object or its assembly goes out; LLVM's loader for objects.

The text is parsed, verified and compiled. No IR passes run unless ``optimize`` asks for them: the emitters write the
form that the code generator wants. This is the one module that needs LLVM; a program that was kept is loaded without.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Sequence

import llvmlite.binding as llvm

from staticgrad.compiler.emit.target import Target
from staticgrad.phases import phase

CODEGEN_LEVEL = 2

# LLVM through llvmlite is used by one thread at a time; library names are unique in the process.
_lock = threading.RLock()
_numbers = itertools.count()


@functools.cache
def _initialized() -> bool:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return True


@functools.cache
def target_machine(target: Target) -> llvm.TargetMachine:
    """The code generator for ``target`` on this machine's triple, with position independent code."""
    _initialized()
    triple = llvm.Target.from_triple(llvm.get_process_triple())
    return triple.create_target_machine(
        cpu=target.cpu, features=target.features, opt=CODEGEN_LEVEL, reloc="pic", codemodel="small"
    )


def object_code(text: str, target: Target, *, optimize: bool = False) -> tuple[bytes, tuple[str, ...]]:
    """A relocatable object of a module, and the functions that it exports.

    Raises:
        RuntimeError: malformed text; with LLVM's message.
    """
    with _lock:
        machine, module = _parsed(text, target, optimize)
        exports = tuple(f.name for f in module.functions if not f.is_declaration and f.linkage is llvm.Linkage.external)
        return _emitted(machine, module), exports


@phase("machine code")
def _emitted(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
    return bytes(machine.emit_object(module))


def assembly(text: str, target: Target, *, optimize: bool = False) -> str:
    """The machine code of a module as text."""
    with _lock:
        machine, module = _parsed(text, target, optimize)
        return str(machine.emit_assembly(module))


@phase("parse LLVM")
def _parsed(text: str, target: Target, optimize: bool) -> tuple[llvm.TargetMachine, llvm.ModuleRef]:
    machine = target_machine(target)
    module = llvm.parse_assembly(text)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    if optimize:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    return machine, module


@functools.cache
def _jit() -> llvm.LLJIT:
    """The process's one loader; it outlives every library, since closing it would free their code."""
    _initialized()
    return llvm.create_lljit_compiler()


class LoadedObject:
    """A relocatable object in memory: ``address`` of each of ``exports``. The code lives as long as this does."""

    def __init__(self, code: bytes, exports: Sequence[str]) -> None:
        with _lock:
            builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
            for name in exports:
                builder.export_symbol(name)
            self._tracker = builder.link(_jit(), f"staticgrad.{next(_numbers)}")
            self._addresses = {name: int(self._tracker[name]) for name in exports}

    def address(self, name: str) -> int:
        """The address of an exported function; ``KeyError`` for any other name."""
        return self._addresses[name]
