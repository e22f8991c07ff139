"""Programs for others, linked: the texts of several LLVM modules come in, one module goes out, in any of its forms.

Each entry brings the modules of its program, which define ``main``, and a module that calls it and defines ``entry``,
perhaps ``entry_…`` too. Linked together, these get the entry's name; all else is internal, under names that begin with
the entry's and a point, so that programs of any number live beside each other. Then LLVM's pipeline of ``-O2`` runs
over the whole, without unrolling and vectorizing, which emitters have done: it joins what programs have twice and what
runs one after the other.

    Linked ::= object | assembly | text | bitcode | shared image
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

from staticgrad.base.errors import StaticGradError
from staticgrad.base.frozen import frozen
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.native.codegen import LEVEL, TargetMachine, lock

ENTRY, MAIN = "entry", "main"
CONSTANTS = (
    b".rodata",
    b".data",
    b".srodata",
    b"DATA",
    b"__const",
    b"__literal",
)  # what such sections' names begin with


@frozen
class Linked:
    """A module in its forms: the relocatable object, with its bytes of code and of constants, and LLVM's text or
    bitcode if that was asked for."""

    object: bytes
    code_bytes: int
    constant_bytes: int
    ir: bytes


def link_modules(
    entries: Mapping[str, Sequence[str]],
    shared: Sequence[str],
    target: Target,
    ir: Literal["text", "bitcode"] | None = None,
) -> Linked:
    """Link the modules of each entry, by the names under which others see them, and those that all ``shared``.

    Raises:
        StaticGradError: LLVM has no code generator for the target.
        RuntimeError: malformed text; with LLVM's message.
    """
    import llvmlite.binding as llvm

    # What LLVM has made is given back here, last made first: the garbage collector would give a context back before the
    # modules in it, whose memory that is.
    with lock, ExitStack() as stack:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        machine = stack.enter_context(_machine(llvm, target))
        layout = str(machine.target_data)
        context = stack.enter_context(llvm.create_context())

        def parsed(text: str) -> Any:
            module = stack.enter_context(llvm.parse_assembly(text, context))
            module.triple, module.data_layout = machine.triple, layout
            return module

        whole = parsed("")
        for name, texts in entries.items():
            part = parsed("")
            for text in texts:
                part.link_in(parsed(text))
            _hide(part, name)
            for function in part.functions:
                if function.name.startswith(ENTRY) and not function.is_declaration:
                    function.name = f"{name}{function.name.removeprefix(ENTRY)}"
            whole.link_in(part)
        for text in shared:
            whole.link_in(parsed(text))
        whole.verify()
        _optimize(llvm, whole, machine, stack)
        content: bytes = machine.emit_object(whole)
        forms = {"text": lambda: str(whole).encode(), "bitcode": whole.as_bitcode, None: bytes}
        return Linked(content, *_section_bytes(llvm, content), forms[ir]())


def _hide(module: Any, entry: str) -> None:
    """Make internal what else than its entries a module defines, under names that are no names of C: another function
    of the entry's name would take it from the entry."""
    for item in (*module.functions, *module.global_variables):
        if not item.is_declaration and (not item.name.startswith(ENTRY) or item.linkage.name == "internal"):
            item.visibility, item.linkage = "default", "internal"
            item.name = f"{entry}.{item.name}"


def _machine(llvm: Any, target: Target) -> Any:
    isa = target.isa
    names = TargetMachine.triple_of(target), isa.cpu, isa.features
    try:
        found = llvm.Target.from_triple(names[0])
    except RuntimeError as error:
        raise StaticGradError(f"LLVM has no code generator for {target.name}: {error}") from error
    return found.create_target_machine(*names[1:], opt=LEVEL, reloc=isa.relocation, codemodel="small", abiname=isa.abi)


def _optimize(llvm: Any, module: Any, machine: Any, stack: ExitStack) -> None:
    options = stack.enter_context(llvm.create_pipeline_tuning_options(speed_level=2))
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = stack.enter_context(llvm.create_pass_builder(machine, options))
    passes = stack.enter_context(_disposed(builder.getModulePassManager()))
    passes.add_merge_functions_pass()
    passes.add_constant_merge_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)


@contextmanager
def _disposed(passes: Any) -> Iterator[Any]:
    """A pass manager of llvmlite, whose memory is given back at the end. Its own ``close`` gives nothing back: the
    class inherits first from the base whose ``_dispose`` does nothing. A detached one is not given back twice, also by
    a llvmlite that has mended this."""
    from llvmlite.binding.newpassmanagers import NewPassManager

    try:
        yield passes
    finally:
        NewPassManager._dispose(passes)
        passes.detach()


def _section_bytes(llvm: Any, content: bytes) -> tuple[int, int]:
    """Bytes of code and of constants in an object."""
    code = constants = 0
    for section in llvm.ObjectFileRef.from_data(content).sections():
        if section.is_text():
            code += section.size()
        elif (section.name() or b"").startswith(CONSTANTS):
            constants += section.size()
    return code, constants
