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
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from staticgrad import nest
from staticgrad.compiler.emit.linked import Linked, link_modules
from staticgrad.compiler.emit.target import Target, compact, current_target
from staticgrad.compiler.emit.triples import target_for
from staticgrad.compiler.program import ConstantSlot, Interface, StateSlot
from staticgrad.config import host_arch
from staticgrad.errors import GraphError, StaticGradError
from staticgrad.frozen import frozen
from staticgrad.graph import Node, Tensor
from staticgrad.optable import Array
from staticgrad.runtime.cfunction import form_of
from staticgrad.runtime.cfunction_text import MOST_ON_STACK
from staticgrad.runtime.export import casadi
from staticgrad.runtime.export.entries import EntryForm, initial_state, text
from staticgrad.runtime.export.header import header
from staticgrad.runtime.export.interface import (
    Entry,
    ExportedCheck,
    ExportInterface,
    NamedType,
    StateLayout,
    layout,
    to_plain,
)
from staticgrad.runtime.export.names import check_identifier, fixed_names, identifier, initial_name
from staticgrad.runtime.files import replace as replace_file
from staticgrad.runtime.image import MACHINE
from staticgrad.tables import byte_text
from staticgrad.types import TensorType

if TYPE_CHECKING:
    from staticgrad.runtime.executable import Executable
    from staticgrad.runtime.state import SessionState

Described = Callable[[Sequence[Entry]], tuple[Entry, ...]]  # entries as their callers know them
Format = Literal["object", "shared", "program", "llvm"]
Optimize = Literal["speed", "size"]
InitialState = Literal["data", "file"]
FORMATS: tuple[Format, ...] = get_args(Format)
HEADER, STATE = ".h", ".state"  # endings of the files beside
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
        """Bytes that are only read, code and constants."""
        return self.code_bytes + self.constant_bytes

    @property
    def ram_bytes(self) -> int:
        """Bytes that are written, the state and the largest workspace, as one is enough where entries run one after
        the other. Feeds, results and the stack are the caller's."""
        return self.interface.state.nbytes + max(entry.workspace_bytes for entry in self.interface.entries)

    def json(self) -> str:
        """The interface as JSON, for programs that call the functions by it: name, target, entries (feeds, results,
        bytes of workspace, checks), state (bytes, arrays at their offsets)."""
        return json.dumps(to_plain(self.interface), indent=1)

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
    threads: int = 0,
) -> ExportReport:
    """Write programs to files that run where there is no compiler and no Python: a C function for each entry.

    ``int entry(const void *const *in, void *const *out, void *workspace, void *state)`` takes the addresses of feeds
    and results in their order, memory to work in, and the state: the variables that the entries share, which begin as
    they are in the session now. It allocates nothing and has elementary functions inside; it calls nothing but
    ``memcpy`` and the like, and the compiler's own library for arithmetic that a processor lacks (64-bit integers,
    floats). A header beside the file names sizes, places, shapes and dtypes.

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
        target: the processor, by default this one; of a program several. By name (``avx512``, ``avx2``, ``generic``,
            ``aarch64``, ``riscv64``, ``riscv32``, ``cortex-m4``, ``cortex-m4-soft``, ``cortex-m7``, ``wasm32``,
            ``wasm32-simd128``) or by LLVM's triple of it.
        name: what names of the state begin with, by default the file's.
        optimize: ``"size"`` for little code.
        initial_state: the state as it begins as constant ``"data"`` of the object, or in a ``"file"`` beside it that
            ends in ``.state``.
        threads: for so many at most each entry has a second function, ``entry_on_threads``, whose last argument is the
            caller's way to have work done by several: see the header. Its workspace is larger. 0: none.

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
        ['train', 'predict'] 128
    """
    how = _How(format, optimize, "slots", None, initial_state, threads)
    return _export(Path(os.fsdecode(path)), entries, target, name, how)


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
    threads: int,
) -> ExportReport:
    """``export`` of one function, of any signature."""
    path = Path(os.fsdecode(path))
    whole = executable._with_gradient(signature, wrt, "export") or executable
    function = check_identifier(name) if name is not None else identifier(path.stem)
    entries, described = {function: whole}, None
    if signature == CASADI:
        entries = casadi.columns(executable, function)
        described = functools.partial(casadi.described, executable=executable)
    how = _How(format, optimize, signature, wrt, initial_state, threads)
    return _export(path, entries, target, name, how, described)


@frozen
class _How:
    """The choices of an export.

    Raises:
        StaticGradError: one that there is not.
    """

    format: Format
    optimize: Optimize
    signature: str
    wrt: Tensor | None
    initial_state: InitialState
    threads: int

    def __post_init__(self) -> None:
        for what, given, known in (
            ("format", self.format, FORMATS),
            ("optimize", self.optimize, get_args(Optimize)),
            ("initial_state", self.initial_state, get_args(InitialState)),
        ):
            if given not in known:
                raise StaticGradError(
                    f"export: {what}: expected one of {', '.join(map(repr, known))}, actual {given!r}"
                )
        if self.is_casadi and self.format not in ("shared", "object"):
            raise StaticGradError(f"export: CasADi loads a format of 'shared' or 'object', actual {self.format!r}")
        if not isinstance(self.threads, int) or self.threads < 0:
            raise StaticGradError(f"export: threads: expected a number of threads, actual {self.threads!r}")
        if self.threads and (not self.has_state or self.format == "program"):
            raise StaticGradError("export: threads: only functions of 'slots' are given threads, and no 'program' is")

    @property
    def is_casadi(self) -> bool:
        return self.signature == CASADI

    @property
    def has_state(self) -> bool:
        """True if functions are given their memory and a state."""
        return self.signature == "slots"


def _export(
    path: Path,
    entries: Mapping[str, Executable],
    target: str | Sequence[str] | None,
    name: str | None,
    how: _How,
    described: Described | None = None,
) -> ExportReport:
    targets = _targets(target, how.format)
    _check_path(path, how)
    _check_entries(entries)
    stem = check_identifier(name) if name is not None else identifier(path.stem)
    fixed_names(stem, map(check_identifier, entries))
    stores = {id(exe._compiler.store): exe._compiler.store for exe in entries.values()}
    if len(stores) > 1:
        raise GraphError(f"export: {', '.join(map(repr, entries))}: expected executables of one session, which share"
                         f" its state, actual {len(stores)} sessions")  # fmt: skip
    (store,) = stores.values()
    made = [_Exported(stem, entries, store, one, how, described) for one in targets]
    if how.format == "program":
        return _write_program(path, made)
    return _write_module(path, *made)


def _targets(names: str | Sequence[str] | None, format: Format) -> list[Target]:
    given = [names] if names is None or isinstance(names, str) else names
    if not isinstance(given, Sequence) or not all(isinstance(name, str | None) for name in given):
        raise StaticGradError(f"export: target: expected the name of one, actual {names!r}")
    if len(given) != 1 and (format != "program" or not given):
        raise StaticGradError(f"export: expected one target for a file of format {format!r}, actual {list(given)}")
    targets = [current_target() if name is None else target_for(name) for name in dict.fromkeys(given)]
    runs_on = {"shared": host_arch(), "program": MACHINE}.get(format)
    for target in targets:
        if runs_on is not None and (target.isa.triple or (target.isa.arch or host_arch()) != runs_on):
            raise StaticGradError(
                f"export: a file of format {format!r} is for {runs_on} here and not for {target.name}: export an"
                " 'object' and link it there"
            )
    return targets


def _check_path(path: Path, how: _How) -> None:
    """Check that each file has a name of its own."""
    if not path.name:
        raise StaticGradError(f"export: expected the path of a file, actual {str(path)!r}")
    beside = [HEADER, *([STATE] if how.initial_state == "file" else [])]
    if how.format != "program" and not how.is_casadi and path.suffix in beside:
        raise StaticGradError(f"export: expected another ending than that of a file beside it, actual {path}")


def _check_entries(entries: Mapping[str, Executable]) -> None:
    from staticgrad.runtime.executable import Executable

    wanted = "export: expected executables by the names of their functions, actual"
    if not isinstance(entries, Mapping):
        raise GraphError(f"{wanted} {entries!r:.80}: write {{'name': …}}")
    if not entries:
        raise GraphError(f"{wanted} none")
    for name, executable in entries.items():
        if not isinstance(executable, Executable):
            raise GraphError(f"{wanted} {executable!r:.80} as {name!r}")


# -- programs ---------------------------------------------------------------------------------------------------------


class _Exported:
    """Programs for one target: their interface, the texts of their modules, the state as it begins."""

    def __init__(
        self,
        name: str,
        entries: Mapping[str, Executable],
        store: SessionState,
        target: Target,
        how: _How,
        described: Described | None,
    ) -> None:
        self.target = target
        self.how = how
        self._written_for = compact(target) if how.optimize == "size" else target
        compiled = {entry: _Compiled(executable, self._written_for, how) for entry, executable in entries.items()}
        variables: dict[str, TensorType] = {}
        for one in compiled.values():
            variables |= {slot.name: slot.type for slot in one.interface.slots if isinstance(slot, StateSlot)}
        state = layout(variables, draws=any(one.form.keys for one in compiled.values()))
        initial = _initial(store, state)
        self._forms = {entry: one.entry(state, initial) for entry, one in compiled.items()}
        self._programs = {entry: one.texts for entry, one in compiled.items()}
        known = tuple(compiled[entry].described(entry, form) for entry, form in self._forms.items())
        known = described(known) if described is not None else known
        self.initial = initial if how.has_state else b""
        self.interface = ExportInterface(name, target.name, known, state if how.has_state else StateLayout())

    @property
    def has_initial(self) -> bool:
        """True if the state as it begins is a constant of the module."""
        return bool(self.initial) and self.how.initial_state == "data" and self.how.format != "program"

    def linked(self) -> Linked:
        """The module of all entries."""
        shared = []
        if self.has_initial:
            shared.append(initial_state(initial_name(self.interface.name), self.initial, self.target))
        if self.how.is_casadi:
            shared += [casadi.description(e, self._forms[e.name], self.target) for e in self.interface.entries]
        write = casadi.text if self.how.is_casadi else text
        modules = {
            entry: [write(form, self._written_for), *self._programs[entry]] for entry, form in self._forms.items()
        }
        return link_modules(modules, shared, self.target)


class _Compiled:
    """An executable's program for a target, and the form of its function."""

    def __init__(self, executable: Executable, target: Target, how: _How) -> None:
        types = executable._latest_types("export")
        options = replace(executable._options, target=target, workers=max(1, how.threads))
        program = executable._compiler.unloaded(executable._wanted(), types, options)
        self.interface: Interface = program.interface
        self.texts = program.modules
        self._how = how
        feeds, fetched = list(types.items()), executable._fetched()
        kind, has_state = "slots" if how.is_casadi else how.signature, how.has_state
        self.form, results = form_of(
            kind, self.interface, feeds, fetched, how.wrt, caller="export", has_state=has_state
        )
        what, nbytes = f"export: {how.signature!r}", self.form.frame_bytes
        if not has_state and self.form.keys:
            raise GraphError(f"{what}: the program draws random numbers, which need a state: 'slots'")
        if not (has_state or how.is_casadi) and nbytes > MOST_ON_STACK:
            raise GraphError(f"{what}: expected a program that works in {MOST_ON_STACK} bytes of the stack, actual"
                             f" {nbytes}: 'slots' is given its memory")  # fmt: skip
        written = any(isinstance(slot, StateSlot) and slot.written for slot in self.interface.slots)
        self._writes = written or bool(self.form.keys)  # which count the runs
        self.feeds = [NamedType(x.name, t) for x, t in feeds]
        self.results = [
            NamedType(key or x.name, t) for key, (x, t) in zip(_keys(executable.fetches), results, strict=True)
        ]
        self._structure = _structure(executable.fetches, itertools.count())

    def entry(self, state: StateLayout, initial: bytes) -> EntryForm:
        """The function's form, with a state that lies so."""
        slots = list(enumerate(self.interface.slots))
        constants = tuple((n, slot.value.tobytes()) for n, slot in slots if isinstance(slot, ConstantSlot))
        variables = tuple((n, state.offset(slot.name)) for n, slot in slots if isinstance(slot, StateSlot))
        own = b"" if self._how.has_state else initial
        feed_bytes = tuple(feed.type.nbytes for feed in self.feeds)
        return EntryForm(self.form, constants, variables, own, feed_bytes, self._how.threads)

    def described(self, name: str, form: EntryForm) -> Entry:
        """The entry as its caller knows it."""
        has_state = self._how.has_state
        checks = tuple(
            ExportedCheck(c.kind, c.message, str(c.source or ""), c.size, c.offset, c.wraps)
            for c in self.interface.checks
        )
        return Entry(
            name, self._how.signature, tuple(self.feeds), tuple(self.results), self._structure,
            form.workspace_bytes if has_state else 0, checks, has_state and form.uses_state,
            has_state and self._writes, self._how.threads,
        )  # fmt: skip


def _keys(fetches: Any, key: str = "") -> Iterator[str]:
    """The name of each result of a nest that gives names: keys, one inside the other; empty elsewhere."""
    if isinstance(fetches, Tensor):
        yield key
        return
    parts = nest.children(fetches) or ()
    names = fetches if isinstance(fetches, Mapping) else getattr(fetches, "_fields", None)
    if is_dataclass(fetches):
        names = [field.name for field in fields(fetches) if field.init]
    for number, part in enumerate(parts):
        own = key if names is None else list(map(str, names))[number]
        yield from _keys(part, f"{key}/{own}" if key and names is not None else own)


def _structure(fetches: Any, numbers: Iterator[int]) -> Any:
    """The nest of fetches as JSON, results numbered."""
    if isinstance(fetches, Tensor):
        return next(numbers)
    if fetches is None or isinstance(fetches, Node):
        return None
    parts = [_structure(part, numbers) for part in nest.children(fetches) or ()]
    if isinstance(fetches, Mapping):
        keys = [key if isinstance(key, int | str) else str(key) for key in fetches]
        if len(set(keys)) < len(keys):
            raise GraphError(f"export: expected keys that are different texts, actual {list(fetches)}")
        return ["dict", keys, *parts]
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


def _write_module(path: Path, made: _Exported) -> ExportReport:
    """Write the module of a target, the header beside it, and the state if that is a file."""
    how, format = made.how, made.how.format
    linked = made.linked()
    if format == "llvm":
        content = linked.bitcode if path.suffix == BITCODE else linked.text.encode()
    else:
        content = linked.object if format == "object" else _shared_library(linked.object)
    files = {path: content}
    if not how.is_casadi:  # which asks the functions
        text = header(made.interface, has_initial=made.has_initial, version=_version())
        files[path.with_suffix(HEADER)] = text.encode()
    if made.initial and how.initial_state == "file":
        files[path.with_suffix(STATE)] = made.initial
    for file, data in files.items():
        replace_file(file, data)
    digest = hashlib.sha256(content).hexdigest()
    return ExportReport(tuple(files), made.interface, linked.code_bytes, linked.constant_bytes, digest)


@functools.cache
def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("staticgrad")
    except metadata.PackageNotFoundError:
        return "of a checkout"


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


def _write_program(path: Path, made: Sequence[_Exported]) -> ExportReport:
    from staticgrad.compiler.emit.link import link
    from staticgrad.runtime.export import program_file

    linked = {one.target.name: one.linked() for one in made}
    images = {target: link(one.object) for target, one in linked.items()}
    content = program_file.to_bytes(made[0].interface, images, made[0].initial)
    digest = program_file.write(path, content)
    largest = max(linked.values(), key=lambda one: one.code_bytes)
    return ExportReport((path,), made[0].interface, largest.code_bytes, largest.constant_bytes, digest)
