"""Exporting: executables come in, files go out.

    executables -> programs for the target     (compile_region, as for any call)
                -> functions around them       (entries)
                -> one module                  (emit/linked)
                -> files of the format, and a header

Entries share a state: the variables that any of them reads or writes, as they are in the session now. What the files
need when they run is what their caller gives: arrays, a workspace, the state.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from staticgrad import nest
from staticgrad.compiler.emit.linked import Linked, Optimize, link_modules
from staticgrad.compiler.emit.target import TARGETS, Target, current_target, host_arch
from staticgrad.compiler.program import ConstantSlot, Interface, StateSlot
from staticgrad.errors import GraphError, StaticGradError
from staticgrad.frozen import frozen
from staticgrad.graph import Node, Tensor
from staticgrad.optable import Array
from staticgrad.runtime.cfunction import form_of
from staticgrad.runtime.cfunction_text import MOST_ON_STACK
from staticgrad.runtime.export import casadi
from staticgrad.runtime.export.entries import EntryForm, initial_state, text
from staticgrad.runtime.export.header import check_identifier, header, identifier, initial_name
from staticgrad.runtime.export.interface import Entry, ExportInterface, NamedType, StateLayout, layout
from staticgrad.runtime.files import replace as replace_file
from staticgrad.tables import byte_text
from staticgrad.types import TensorType

if TYPE_CHECKING:
    from staticgrad.runtime.executable import Executable
    from staticgrad.runtime.state import SessionState

Described = Callable[[Sequence[Entry]], tuple[Entry, ...]]  # entries as their callers know them
Format = Literal["object", "shared", "program", "llvm"]
InitialState = Literal["data", "file"]
FORMATS: tuple[Format, ...] = get_args(Format)
BITCODE = ".bc"  # the ending of files of LLVM bitcode; others are its text
CASADI = "casadi"  # a signature of several functions
LINKERS = ("cc", "gcc", "clang")


@frozen
class ExportReport:
    """The files that an export has written, and what they need.

    Attributes:
        files: the file that was asked for, then those beside it: the header, the state as it begins.
        interface: entries, their arrays, the state's layout.
        code_bytes: machine code; ``constant_bytes`` constants, such as the state as it begins. Both lie in flash.
        digest: SHA-256 of the first file.
    """

    files: tuple[Path, ...]
    interface: ExportInterface
    code_bytes: int
    constant_bytes: int
    digest: str

    @property
    def flash_bytes(self) -> int:
        """Bytes that are only read: code and constants."""
        return self.code_bytes + self.constant_bytes

    @property
    def ram_bytes(self) -> int:
        """Bytes that are written: the state, and the largest workspace, as one is enough where entries run one after
        the other. Feeds, results and the stack are the caller's."""
        return self.interface.state.nbytes + max(entry.workspace_bytes for entry in self.interface.entries)

    def __str__(self) -> str:
        def line(what: str, nbytes: int) -> str:
            return f"{what:<24}{nbytes:>12}  {byte_text(nbytes)}"

        spaces = [(f"  workspace {e.name}", e.workspace_bytes) for e in self.interface.entries]
        return "\n".join([
            f"{', '.join(map(str, self.files))} for {self.interface.target}", line("flash", self.flash_bytes),
            line("  code", self.code_bytes), line("  constants", self.constant_bytes), line("RAM", self.ram_bytes),
            line("  state", self.interface.state.nbytes), *(line(*space) for space in spaces),
        ])  # fmt: skip


def export(
    path: str | os.PathLike[str],
    entries: Mapping[str, Executable],
    format: Format = "object",
    target: str | Sequence[str] | None = None,
    name: str | None = None,
    optimize: Optimize = "speed",
    *,
    initial_state: InitialState = "data",
) -> ExportReport:
    """Write programs to files that run where there is no compiler and no Python: a C function for each entry.

    ``int entry(const void *const *in, void *const *out, void *workspace, void *state)`` takes the addresses of feeds
    and results in their order, memory to work in, and the state: the variables that the entries share, which begin as
    they are in the session now. It allocates nothing, calls nothing but ``memcpy`` and the like, and has elementary
    functions inside. A header beside the file names sizes, places, shapes and dtypes.

    ===========  =======================================================================================================
    format       written
    ===========  =======================================================================================================
    "object"     a relocatable object, ``path``, and its header
    "shared"     a shared library, linked by the system's compiler (``CC``, or cc, gcc, clang), and its header
    "program"    one file that ``sg.load`` runs with NumPy alone
    "llvm"       LLVM text, or bitcode if ``path`` ends in ``.bc``, and its header
    ===========  =======================================================================================================

    Args:
        entries: executables of one session, by the names of their functions.
        target: the processor, by default this one; of a program several.
        name: what names of the state begin with, by default the file's.
        optimize: ``"size"`` for little code.
        initial_state: the state as it begins as constant ``"data"`` of the object, or in a ``"file"`` beside it that
            ends in ``.state``.

    Raises:
        GraphError: a program that calls Python or other processes, or reads gradients of tapes; executables of several
            sessions; a name that C doesn't allow; open sizes before the first call.
        StaticGradError: an unknown format or target, or no compiler that links a shared library.
        OSError: a file cannot be written.

    Example:
        >>> import pathlib, tempfile
        >>> x, w = sg.placeholder((2,), name="x"), sg.Variable([1.0, 1.0], name="w")
        >>> loss = sg.sum((x * w - 1) ** 2)
        >>> sess = sg.Session()
        >>> step = sess.compile([loss, sg.optim.SGD(0.1).minimize(loss)], x)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     report = sg.export(pathlib.Path(folder) / "model.o", {"train": step, "predict": sess.compile(x * w, x)})
        ...     print([entry.name for entry in report.interface.entries], report.interface.state.nbytes)
        ['train', 'predict'] 64
    """
    return _export(Path(path), entries, format, target, name, optimize, "slots", None, initial_state)


def export_one(
    path: str | os.PathLike[str],
    executable: Executable,
    format: Format,
    target: str | Sequence[str] | None,
    name: str | None,
    optimize: Optimize,
    signature: str,
    wrt: Tensor | None,
    initial_state: InitialState,
) -> ExportReport:
    """``export`` of one function, of any signature."""
    path = Path(path)
    whole = executable._with_gradient(signature, wrt, "export") or executable
    function = check_identifier(name) if name is not None else identifier(path.stem)
    entries, described = {function: whole}, None
    if signature == CASADI:
        entries = casadi.columns(executable, function)
        described = functools.partial(casadi.described, executable=executable)
    return _export(path, entries, format, target, name, optimize, signature, wrt, initial_state, described)


def _export(
    path: Path,
    entries: Mapping[str, Executable],
    format: Format,
    target: str | Sequence[str] | None,
    name: str | None,
    optimize: Optimize,
    signature: str,
    wrt: Tensor | None,
    initial: InitialState,
    described: Described | None = None,
) -> ExportReport:
    for what, given, known in (
        ("format", format, FORMATS),
        ("optimize", optimize, get_args(Optimize)),
        ("initial_state", initial, get_args(InitialState)),
    ):
        if given not in known:
            raise StaticGradError(f"export: {what}: expected one of {', '.join(map(repr, known))}, actual {given!r}")
    if signature == CASADI and format not in ("shared", "object"):
        raise StaticGradError(f"export: CasADi loads a format of 'shared' or 'object', actual {format!r}")
    targets = _targets(target, format)
    if not entries:
        raise GraphError("export: expected executables by the names of their functions, actual none")
    stem = check_identifier(name) if name is not None else identifier(path.stem)
    for entry in entries:
        check_identifier(entry)
    stores = {id(exe._compiler.store): exe._compiler.store for exe in entries.values()}
    if len(stores) > 1:
        raise GraphError(f"export: {', '.join(map(repr, entries))}: expected executables of one session, which share"
                         f" its state, actual {len(stores)} sessions")  # fmt: skip
    (store,) = stores.values()
    made = [_Exported(stem, entries, store, one, optimize, signature, wrt, described) for one in targets]
    writer = {"object": _write_object, "shared": _write_shared, "llvm": _write_llvm, "program": _write_program}[format]
    return writer(path, made, initial)


def _targets(names: str | Sequence[str] | None, format: Format) -> list[Target]:
    if names is None:
        return [current_target()]
    given = [names] if isinstance(names, str) else list(names)
    if len(given) != 1 and format != "program":
        raise StaticGradError(f"export: expected one target for a file of format {format!r}, actual {given}")
    return [_target(name) for name in given]


def _target(name: str) -> Target:
    if name not in TARGETS:
        raise StaticGradError(f"export: target: expected one of {', '.join(TARGETS)}, actual {name!r}")
    return TARGETS[name]


# -- programs ---------------------------------------------------------------------------------------------------------


class _Exported:
    """Programs for one target: their interface, the texts of their modules, the state as it begins."""

    def __init__(
        self,
        name: str,
        entries: Mapping[str, Executable],
        store: SessionState,
        target: Target,
        optimize: Optimize,
        signature: str,
        wrt: Tensor | None,
        described: Described | None,
    ) -> None:
        self.target = target
        self.optimize = optimize
        compiled = {entry: _Compiled(exe, target, optimize, signature, wrt) for entry, exe in entries.items()}
        variables: dict[str, TensorType] = {}
        for one in compiled.values():
            variables |= {slot.name: slot.type for slot in one.interface.slots if isinstance(slot, StateSlot)}
        state = layout(variables, draws=any(one.form.keys for one in compiled.values()))
        self.initial = _initial(store, state)
        self._forms = {entry: one.entry(state, self.initial) for entry, one in compiled.items()}
        self._programs = {entry: one.texts for entry, one in compiled.items()}
        found = tuple(compiled[entry].described(entry, form) for entry, form in self._forms.items())
        known = described(found) if described is not None else found
        self.is_casadi = signature == CASADI
        has_state = signature == "slots"
        self.interface = ExportInterface(
            name, target.name, described(known) if described else known, state if has_state else StateLayout()
        )
        if not has_state:
            self.initial = b""

    def linked(self, *, with_initial: bool) -> Linked:
        """The module of all entries."""
        shared = [initial_state(initial_name(self.interface), self.initial, self.target)] if with_initial else []
        write = text
        if self.is_casadi:
            write = casadi.text
            shared += [casadi.description(e, self._forms[e.name], self.target) for e in self.interface.entries]
        modules = {entry: [write(form, self.target), *self._programs[entry]] for entry, form in self._forms.items()}
        return link_modules(modules, shared, self.target, self.optimize)


class _Compiled:
    """An executable's program for a target, and the form of its function."""

    def __init__(
        self, executable: Executable, target: Target, optimize: Optimize, signature: str, wrt: Tensor | None
    ) -> None:
        types = executable._latest_types("export")
        options = replace(executable._options, target=target)
        program = executable._compiler.unloaded(executable._wanted(), types, options)
        self.interface: Interface = program.interface
        self.texts = program.modules
        feeds = list(types.items())
        self._has_state = has_state = signature == "slots"
        self._signature = signature
        kind, fetched = "slots" if signature == CASADI else signature, executable._fetched()
        self.form, results = form_of(kind, self.interface, feeds, fetched, wrt, caller="export", has_state=has_state)
        if not has_state and self.form.keys:
            raise GraphError(f"export: {signature!r}: the program draws random numbers, which need a state: 'slots'")
        if signature not in ("slots", CASADI) and self.form.frame_bytes > MOST_ON_STACK:
            raise GraphError(
                f"export: {signature!r}: expected a program that works in {MOST_ON_STACK} bytes of the stack, actual"
                f" {self.form.frame_bytes}: 'slots' is given its memory"
            )
        self.feeds, self.results = ([NamedType(x.name, t) for x, t in typed] for typed in (feeds, results))
        self._structure = _structure(executable.fetches, itertools.count())

    def entry(self, state: StateLayout, initial: bytes) -> EntryForm:
        """The function's form, with a state that lies so."""
        slots = list(enumerate(self.interface.slots))
        constants = tuple((n, slot.value.tobytes()) for n, slot in slots if isinstance(slot, ConstantSlot))
        variables = tuple((n, state.offset(slot.name)) for n, slot in slots if isinstance(slot, StateSlot))
        feed_bytes = tuple(feed.type.nbytes for feed in self.feeds)
        return EntryForm(self.form, constants, variables, b"" if self._has_state else initial, feed_bytes)

    def described(self, name: str, form: EntryForm) -> Entry:
        """The entry as its caller knows it."""
        checks = tuple(
            f"{check.message or check.kind}{'' if check.source is None else f' ({check.source})'}"
            for check in self.interface.checks
        )
        return Entry(
            name, self._signature, tuple(self.feeds), tuple(self.results), self._structure,
            form.workspace_bytes if self._has_state else 0, checks, self._has_state and form.uses_state,
        )  # fmt: skip


def _structure(fetches: Any, numbers: Iterator[int]) -> Any:
    """The nest of fetches as JSON, results numbered."""
    if isinstance(fetches, Tensor):
        return next(numbers)
    if fetches is None or isinstance(fetches, Node):
        return None
    parts = [_structure(part, numbers) for part in nest.children(fetches) or ()]
    if isinstance(fetches, Mapping):
        return ["dict", [key if isinstance(key, int | str) else str(key) for key in fetches], *parts]
    if is_dataclass(fetches):
        return ["dict", [field.name for field in fields(fetches) if field.init], *parts]
    return ["list" if isinstance(fetches, list) else "tuple", *parts]


def _initial(store: SessionState, state: StateLayout) -> bytes:
    """The bytes of a state as the session has it."""
    store.check_open()
    store.initialize(array.name for array in state.arrays)
    block = bytearray(state.nbytes)

    def take() -> None:
        def put(offset: int, value: Array) -> None:
            block[offset : offset + value.nbytes] = value.tobytes()

        if state.draws:
            put(0, store.random)
        for array in state.arrays:
            put(array.offset, store.array(array.name))

    store.lock.brief(take)
    return bytes(block)


# -- files ------------------------------------------------------------------------------------------------------------


def _written(path: Path, content: bytes, made: _Exported, linked: Linked, initial: InitialState) -> ExportReport:
    """Write a file, the header beside it, and the state if that is a file."""
    files = {path: content}
    if not made.is_casadi:  # CasADi asks the functions
        has_data = bool(made.initial) and initial == "data"
        text = header(made.interface, has_initial=has_data, version=_version())
        files[path.with_suffix(".h")] = text.encode()
    if made.initial and initial == "file":
        files[path.with_suffix(".state")] = made.initial
    return _report(files, made, linked)


def _report(files: Mapping[Path, bytes], made: _Exported, linked: Linked) -> ExportReport:
    if len(files) < len({*map(os.path.abspath, files)}):
        raise StaticGradError(f"export: expected another ending than that of the header, actual {next(iter(files))}")
    for path, content in files.items():
        replace_file(path, content)
    digest = hashlib.sha256(next(iter(files.values()))).hexdigest()
    return ExportReport(tuple(files), made.interface, linked.code_bytes, linked.constant_bytes, digest)


@functools.cache
def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("staticgrad")
    except metadata.PackageNotFoundError:
        return "of a checkout"


def _write_object(path: Path, made: Sequence[_Exported], initial: InitialState) -> ExportReport:
    (one,) = made
    linked = one.linked(with_initial=bool(one.initial) and initial == "data")
    return _written(path, linked.object, one, linked, initial)


def _write_llvm(path: Path, made: Sequence[_Exported], initial: InitialState) -> ExportReport:
    (one,) = made
    linked = one.linked(with_initial=bool(one.initial) and initial == "data")
    content = linked.bitcode if path.suffix == BITCODE else linked.text.encode()
    return _written(path, content, one, linked, initial)


def _write_shared(path: Path, made: Sequence[_Exported], initial: InitialState) -> ExportReport:
    (one,) = made
    if one.target.isa.arch not in ("", host_arch()):
        raise StaticGradError(
            f'export: a shared library for {one.target.name} cannot be linked on {host_arch()}: export an "object" and'
            " link it there"
        )
    linked = one.linked(with_initial=bool(one.initial) and initial == "data")
    return _written(path, _shared_library(linked.object), one, linked, initial)


def _shared_library(content: bytes) -> bytes:
    """The shared library of an object, by the system's compiler."""
    chosen = os.environ.get("CC")
    linker = next(filter(None, map(shutil.which, [chosen] if chosen else LINKERS)), None)
    if linker is None:
        raise StaticGradError(
            f"export: no compiler that links a shared library ({chosen or ', '.join(LINKERS)}): install one, or export"
            ' an "object", or a "program", which needs none'
        )
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "program.o", Path(folder) / "program.so"
        source.write_bytes(content)
        command = [linker, "-shared", "-o", str(out), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise StaticGradError(f"export: {linker} has not linked the library: {done.stderr.strip()}")
        return out.read_bytes()


def _write_program(path: Path, made: Sequence[_Exported], initial: InitialState) -> ExportReport:
    from staticgrad.compiler.emit.link import link
    from staticgrad.runtime.export.program_file import to_bytes

    images, sizes_of = {}, []
    for one in made:
        linked = one.linked(with_initial=False)
        images[one.target.name] = link(linked.object)
        sizes_of.append(linked)
    content = to_bytes(made[0].interface, images, made[0].initial)
    return _report({path: content}, made[0], max(sizes_of, key=lambda linked: linked.code_bytes))
