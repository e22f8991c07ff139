"""Native code in this process: LLVM IR text comes in, addresses of machine code go out.

The text is parsed, verified, compiled to one relocatable object and loaded by LLVM's ORC without a linker. No IR
passes run unless ``optimize`` asks for them: the emitters write the form that the code generator wants.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Sequence

import llvmlite
import llvmlite.binding as llvm

from staticgrad.compiler.emit import cache
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


def target_machine(target: Target) -> llvm.TargetMachine:
    """The code generator for ``target`` on this machine's triple, with position independent code."""
    with _lock:
        _initialized()
        triple = llvm.Target.from_triple(llvm.get_process_triple())
        return triple.create_target_machine(
            cpu=target.cpu, features=target.features, opt=CODEGEN_LEVEL, reloc="pic", codemodel="small"
        )


@functools.cache
def _jit() -> llvm.LLJIT:
    """The process's one loader; it outlives every library, since closing it would free their code."""
    _initialized()
    return llvm.create_lljit_compiler()


class LoadedObject:
    """A relocatable object in memory: ``address`` of each of ``exports``. The code lives as long as this does."""

    @phase("load")
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


class NativeModule:
    """Machine code of one LLVM module.

    ``text`` is the whole module; its external functions can be asked for by name. ``optimize`` runs LLVM's O2
    pipeline over the IR before code is made. Malformed text raises ``RuntimeError`` with LLVM's message.
    """

    def __init__(self, text: str, target: Target, *, optimize: bool = False) -> None:
        self.target = target
        self._text, self._optimize = text, optimize
        key = cache.key_of(text, target, _versions(optimize))
        known = cache.load(key)
        self.cached = known is not None
        if known is None:
            known = self._compile()
            cache.save(key, known)
        self.object_code, self.exports = known.code, known.exports
        self._loaded = LoadedObject(self.object_code, self.exports)

    @phase("machine code")
    def _compile(self) -> cache.CachedObject:
        with _lock:
            machine, module = self._parsed()
            exports = tuple(
                f.name for f in module.functions if not f.is_declaration and f.linkage is llvm.Linkage.external
            )
            return cache.CachedObject(machine.emit_object(module), exports)

    @phase("parse LLVM")
    def _parsed(self) -> tuple[llvm.TargetMachine, llvm.ModuleRef]:
        machine = target_machine(self.target)
        module = llvm.parse_assembly(self._text)
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
        if self._optimize:
            _optimize(module, machine)
        return machine, module

    def address(self, name: str) -> int:
        """The address of an external function of the module; ``KeyError`` for any other name."""
        return self._loaded.address(name)

    def assembly(self) -> str:
        """The machine code as text, made again from the module."""
        with _lock:
            machine, module = self._parsed()
            return str(machine.emit_assembly(module))


@functools.cache
def _versions(optimize: bool) -> str:
    """What makes machine code of text, beside the target."""
    triple = llvm.get_process_triple()
    return f"llvmlite {llvmlite.__version__} LLVM {llvm.llvm_version_info} {triple} {CODEGEN_LEVEL} {optimize}"


def _optimize(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
