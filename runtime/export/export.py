"""Exporting: executables come in, files go out.

    executables -> programs for the target, with functions around them, as one module     (programs)
                -> files of the format, and a header

Entries share a state: the variables that any of them reads or writes, as they are in the session now. What the files
need when they run is what their caller gives: arrays, a workspace, the state.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from staticgrad.base import config
from staticgrad.base.config import host_arch
from staticgrad.base.errors import FormatError, GraphError, StaticGradError
from staticgrad.base.files import path_of, replace_all
from staticgrad.base.image import MACHINE
from staticgrad.compiler.machine.target import Target, current_target
from staticgrad.compiler.native.triples import target_for
from staticgrad.runtime.export import casadi
from staticgrad.runtime.export.header import header
from staticgrad.runtime.export.names import check_identifier, fixed_names, identifier
from staticgrad.runtime.export.options import ExportOptions, Format, InitialState, Optimize
from staticgrad.runtime.export.programs import ExportedPrograms
from staticgrad.runtime.export.report import ExportReport
from staticgrad.runtime.export.source import Exportable, ExportSource

HEADER, STATE = ".h", ".state"  # endings of the files beside
BITCODE = ".bc"  # the ending of files of LLVM bitcode; others are its text
LINKERS = ("cc", "gcc", "clang")


def export(
    path: str | os.PathLike[str],
    entries: Mapping[str, Exportable],
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
        entries: executables of one session, by the names of their functions. A loaded program has entries as
            attributes unless it has one of that name itself (``state``, ``get``, …); ``program[name]`` has all.
        target: the processor, by default this one; of a program several. By name (``avx512``, ``avx2``, ``generic``,
            ``aarch64``, ``riscv64``, ``riscv32``, ``cortex-m4``, ``cortex-m4-soft``, ``cortex-m7``, ``wasm32``,
            ``wasm32-simd128``) or by LLVM's triple of it.
        name: what names of the state begin with, by default the file's.
        optimize: ``"size"`` for little code.
        initial_state: the state as it begins as constant ``"data"`` of the object, or in a ``"file"`` beside it that
            ends in ``.state``.
        threads: the most threads that work on a call: each entry has a second function, ``entry_on_threads``, whose
            last argument is the caller's way to have work done by several: see the header. Its workspace is larger.
            0: there is none.

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
    options = ExportOptions(format, optimize, "slots", None, initial_state, threads)
    place = _checked_path(path, options)
    return _export(place, entries, _targets(target, format), name, options)


def export_one(
    path: str | os.PathLike[str],
    source: ExportSource,
    target: str | Sequence[str] | None,
    name: str | None,
    options: ExportOptions,
) -> ExportReport:
    """``export`` of one function, of any signature. What derivatives it needs are declared once all else is checked."""
    place, targets = _checked_path(path, options), _targets(target, options.format)
    function = check_identifier(name) if name is not None else identifier(place.stem)
    if options.is_casadi:
        externals = casadi.externals(source, function)
        sources = {entry: external.source for entry, external in externals.items()}
        return _export(place, sources, targets, name, options, externals)
    return _export(place, {function: source.with_gradient(options.signature, options.wrt)}, targets, name, options)


def _export(
    path: Path,
    entries: Mapping[str, Exportable],
    targets: Sequence[Target],
    name: str | None,
    options: ExportOptions,
    externals: Mapping[str, casadi.External] | None = None,
) -> ExportReport:
    if config.get("BACKEND") == "reference":
        raise StaticGradError("export: the reference backend compiles nothing: there is no program to export")
    sources = _sources(entries)
    stem = check_identifier(name) if name is not None else identifier(path.stem)
    fixed_names(stem, map(check_identifier, entries))
    stores = {id(source.store): source.store for source in sources.values()}
    if len(stores) > 1:
        raise GraphError(f"export: {', '.join(map(repr, entries))}: expected executables of one session, which share"
                         f" its state, actual {len(stores)} sessions")  # fmt: skip
    (store,) = stores.values()
    made = [ExportedPrograms(stem, sources, store, one, options, externals or {}) for one in targets]
    if options.format == "program":
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


def _checked_path(given: str | os.PathLike[str], options: ExportOptions) -> Path:
    """The path of the file, if those beside it have names of their own."""
    path = Path(path_of(given))
    if not path.name:
        raise FormatError(f"path: expected the path of a file, actual {str(path)!r}")
    beside = [HEADER, *([STATE] if options.initial_state == "file" else [])]
    if options.format != "program" and not options.is_casadi and path.suffix in beside:
        raise StaticGradError(f"export: expected another ending than that of a file beside it, actual {path}")
    return path


def _sources(entries: Mapping[str, Exportable]) -> dict[str, ExportSource]:
    """The executables as exports see them.

    Raises:
        GraphError: they are none, or not by name.
    """
    wanted = "export: expected executables by the names of their functions, actual"
    if not isinstance(entries, Mapping):
        raise GraphError(f"{wanted} {entries!r:.80}: write {{'name': …}}")
    if not entries:
        raise GraphError(f"{wanted} none")
    found = {}
    for name, executable in entries.items():
        if not isinstance(executable, Exportable):
            raise GraphError(f"{wanted} {executable!r:.80} as {name!r}")
        found[name] = executable._export_source()
    return found


# -- files ------------------------------------------------------------------------------------------------------------


def _write_module(path: Path, made: ExportedPrograms) -> ExportReport:
    """Write the module of a target, the header beside it, and the state if that is a file."""
    options, format = made.options, made.options.format
    if format == "llvm":
        linked = made.linked("bitcode" if path.suffix == BITCODE else "text")
        content = linked.ir
    else:
        linked = made.linked()
        content = linked.object if format == "object" else _shared_library(linked.object)
    files = {path: content}
    if not options.is_casadi:  # which asks the functions
        text = header(made.interface, has_initial=made.has_initial, version=config.version())
        files[path.with_suffix(HEADER)] = text.encode()
    if made.initial and options.initial_state == "file":
        files[path.with_suffix(STATE)] = made.initial
    replace_all(files.items())
    digest = hashlib.sha256(content).hexdigest()
    return ExportReport(tuple(files), made.interface, linked.code_bytes, linked.constant_bytes, digest)


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


def _write_program(path: Path, made: Sequence[ExportedPrograms]) -> ExportReport:
    from staticgrad.compiler.native.link import link
    from staticgrad.runtime.export import program_file
    from staticgrad.runtime.parts.entry import entry_image

    linked = {one.target.name: one.linked() for one in made}
    images = {target: link(one.object) for target, one in linked.items()}
    content = program_file.to_bytes(made[0].interface, images, made[0].initial, entry_image())
    digest = program_file.write(path, content)
    largest = max(linked.values(), key=lambda one: one.code_bytes)
    return ExportReport((path,), made[0].interface, largest.code_bytes, largest.constant_bytes, digest)
