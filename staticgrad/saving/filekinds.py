"""Files that this package writes, told by how they begin: ``KINDS`` is the table, in which a kind of file is an entry.

``staticgrad info FILE`` prints the report of the first kind that knows a file.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from staticgrad.base import files, nests
from staticgrad.base.errors import FormatError
from staticgrad.base.frozen import frozen
from staticgrad.base.tables import byte_text, table
from staticgrad.runtime.export import program_file
from staticgrad.runtime.files import elf, graphfile, tensorfile

if TYPE_CHECKING:
    from staticgrad.graph.graph import Graph, GraphEntry

HEAD = 64  # bytes by which a kind is told
Rows = list[tuple[str, str]]


@frozen
class FileKind:
    """A kind of file: ``begins`` says of the first bytes of a file, and of its size, whether it is one; ``report`` is a
    text about the file at a path."""

    name: str
    begins: Callable[[bytes, int], bool]
    report: Callable[[Path], str]


def report(path: Path) -> str:
    """A text about a file: what it is and what it holds.

    Raises:
        FormatError: it is of no kind that is known, or damaged.
        OSError: it can't be read.
    """
    return kind_of(path).report(path)


def kind_of(path: Path) -> FileKind:
    """The kind of a file.

    Raises:
        FormatError: it is of no kind that is known.
        OSError: it can't be read.
    """
    with files.opened(path) as file:
        head, size = file.read(HEAD), os.fstat(file.fileno()).st_size
    for kind in KINDS:
        if kind.begins(head, size):
            return kind
    raise FormatError(f"{path}: expected {', '.join(kind.name for kind in KINDS)}; it begins with {head[:16]!r}")


def rows_text(rows: Iterable[tuple[str, str]]) -> str:
    """Names and values below each other."""
    return "\n".join(f"{name:<12}{value}".rstrip() for name, value in rows)


def printable(text: str) -> str:
    """A foreign text without what would act on a terminal."""
    return text if text.isprintable() else repr(text)


# -- graphs ---------------------------------------------------------------------------------------------------------


def is_graph_text(head: bytes, size: int) -> bool:
    """True if a file begins as the text of a graph does, with a header or without."""
    return head.startswith((graphfile.MAGIC.strip(), b"%", b"# ", b"body "))


def _graph(path: Path) -> str:
    from staticgrad.saving.graphs import graph_of

    file = graphfile.read(path)
    graph = graph_of(path, file)
    of_ops = Counter(node.op.name for node in graph.nodes).most_common()
    feeds = [y for node in graph.nodes if node.op.name == "placeholder" for y in node.outputs]
    variables = [x.type for x in graph.variables.values()]
    rows: Rows = [
        ("graph", f"version {file.version}, {len(graph.nodes)} ops, {len(graph.variables)} variables"),
        ("ops", ", ".join(f"{name} {count}" for name, count in of_ops)),
        ("feeds", ", ".join(f"{printable(x.name)} {x.type}" for x in feeds) or "-"),
        ("variables", f"{len(variables)}, {byte_text(sum(type_.nbytes for type_ in variables))}"),
        ("entries", ", ".join(_entry(name, entry) for name, entry in graph.entries.items()) or "-"),
    ]
    beside = f" in {Path(file.beside).name}" if file.beside else ""
    nbytes = sum(array.nbytes for array in file.arrays.values())
    rows.append(("arrays", f"{len(file.arrays)}, {byte_text(nbytes)}{beside}" if file.arrays else "in the text"))
    if file.state is not None:
        values, notes = file.state
        rows.append(("state", f"{len(values)} variables, seed {printable(notes.get('seed', '-'))}"))
    return rows_text(rows) + _listed(graph)


def _entry(name: str, entry: GraphEntry) -> str:
    feeds = ", ".join(f"{printable(x.name)}[{', '.join(map(str, shape))}]" for x, shape in entry.feeds.items())
    return f"{printable(name)}({feeds}) -> {len(nests.flatten(entry.fetches))}"


def _listed(graph: Graph) -> str:
    rows = [(printable(name), str(x.type), str(x.type.nbytes)) for name, x in graph.variables.items()]
    return "\n\n" + table(("variable", "type", "bytes"), rows, right=(2,)) if rows else ""


# -- checkpoints and other files of arrays --------------------------------------------------------------------------


def _is_tensors(head: bytes, size: int) -> bool:
    return head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= size - 8


def _tensors(path: Path) -> str:
    notes = tensorfile.headers(path)[1]
    if notes.get("format", "").startswith(graphfile.FORMAT) and "graph" in notes:
        return _graph(path)
    return tensors_text(path)


def tensors_text(path: Path) -> str:
    """The arrays and notes of a safetensors file."""
    entries, notes = tensorfile.headers(path)
    rows = [(printable(e.name), str(list(e.shape)), e.dtype, str(e.nbytes)) for e in entries]
    lines = [table(("name", "shape", "dtype", "bytes"), rows, right=(3,))]
    lines.append(f"\n{len(entries)} arrays, {byte_text(sum(e.nbytes for e in entries))}")
    return "\n".join([*lines, *(f"{printable(key)}: {printable(value)}" for key, value in sorted(notes.items()))])


# -- object files ---------------------------------------------------------------------------------------------------

_SIZES = re.compile(r"^#define (\w+_(?:WORKSPACE|STATE)_BYTES) ([0-9]{1,18})\b", re.MULTILINE)


def _object(path: Path) -> str:
    file = elf.read(path)
    header = memory_of_header(path.with_suffix(".h"))
    state = sum(nbytes for name, nbytes in header if name.endswith("_STATE_BYTES"))
    workspace = max((nbytes for name, nbytes in header if name.endswith("_WORKSPACE_BYTES")), default=0)
    of_header = f", state {state}, the largest workspace {workspace}" if header else ""
    rows: Rows = [
        ("file", f"{file.type}, {file.machine}, {file.bits} bits"),
        *((name, str(getattr(file, name))) for name in ("text", "rodata", "data", "bss")),
        ("flash", f"{file.flash} bytes: text, rodata and data"),
        ("RAM", f"{file.ram + state + workspace} bytes: data {file.data}, bss {file.bss}{of_header}"),
        *(("", f"{name} {nbytes}") for name, nbytes in header),
    ]
    rows.append(("functions", ", ".join(f"{printable(name)} {nbytes}" for name, nbytes in file.functions) or "-"))
    rows.append(("needs", ", ".join(map(printable, file.undefined)) or "-"))
    return rows_text(rows)


def memory_of_header(path: Path) -> list[tuple[str, int]]:
    """The bytes of workspaces and of the state by the names that a C header gives them, if it is there."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [(found[1], int(found[2])) for found in _SIZES.finditer(text)]


# -- exported programs ----------------------------------------------------------------------------------------------


def _program(path: Path) -> str:
    return rows_text((word, printable(text)) for word, text in program_file.describe(path))


# -- LLVM IR --------------------------------------------------------------------------------------------------------


def _llvm(path: Path) -> str:
    text = files.read_regular(path)[0].decode(errors="replace")
    targets = re.findall(r'^target triple = "([^"\n]*)"', text, re.MULTILINE)
    defined = re.findall(r"^define (?!internal|private|linkonce)[^@\n]*@([\w.$-]+)", text, re.MULTILINE)
    declared = re.findall(r"^declare [^@\n]*@(?!llvm\.)([\w.$-]+)", text, re.MULTILINE)
    return rows_text([
        ("file", f"LLVM IR for {', '.join(targets) or 'no target'}"),
        ("functions", ", ".join(defined) or "-"),
        ("needs", ", ".join(declared) or "-"),
    ])  # fmt: skip


def _bitcode(path: Path) -> str:
    return rows_text([("file", f"LLVM bitcode, {path.stat().st_size} bytes")])


# -- problems of placement ------------------------------------------------------------------------------------------


def _problem(path: Path) -> str:
    from staticgrad.compiler.placement.problems import read_csv

    intervals = read_csv(path)
    nbytes = sum(interval.nbytes for interval in intervals)
    return rows_text([("problem", f"{len(intervals)} buffers, {byte_text(nbytes)}; staticgrad plan places them")])


KINDS: tuple[FileKind, ...] = (
    FileKind("a graph", is_graph_text, _graph),
    FileKind("a checkpoint or another file of arrays", _is_tensors, _tensors),
    FileKind("an exported program", lambda head, size: head.startswith(program_file.MAGIC), _program),
    FileKind("an object file or shared library", lambda head, size: head.startswith(elf.MAGIC), _object),
    FileKind("LLVM IR", lambda head, size: head.startswith((b"; ModuleID", b"source_filename", b"target ")), _llvm),
    FileKind("LLVM bitcode", lambda head, size: head.startswith(b"BC\xc0\xde"), _bitcode),
    FileKind("a problem of placement", lambda head, size: head.startswith(b"id,"), _problem),
)
