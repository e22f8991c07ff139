"""The runtime's parts in machine code: their C comes in, the LLVM text beside it goes out (``make parts``).

    python tests/make_parts.py            writes the texts
    python tests/make_parts.py --check    says which differ from what would be written

The texts are checked in, as users need no C compiler: a change of a ``.c`` file, or of a constant or record of the
Python module that it belongs to, is followed by ``make parts``. Each text begins with a digest of what it was made of,
so that ``tests/runtime/test_parts.py`` finds out without a compiler that it is older.

What clang writes is for one machine and says much that the code generator need not know. ``cleaned`` leaves the
functions alone: no layout of data, no attributes, no metadata. Nothing in the parts depends on them: they have no
variable argument lists, no structures by value and no arguments narrower than an int, and use pointers and words of 64
bits. The text is optimized here, since no IR passes run when a part is loaded.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

from staticgrad.base.frozen import frozen

ROOT = Path(__file__).resolve().parent.parent
CLANG_MAJOR = 14  # whose text is checked in: the next major version writes another one
COMPILER = shutil.which(f"clang-{CLANG_MAJOR}") or "clang"
FLAGS = (
    "-std=c11", "-ffreestanding", "-Os", "-S", "-emit-llvm", "-Wall", "-Wextra", "-Werror", "-fno-discard-value-names",
    "-mllvm", "-opaque-pointers",  # as LLVM 17 and later read
    "-flto=thin",  # ends before passes for vectors, which LLVM 14 has not made ready for opaque pointers
    "-fwrapv", "-fno-strict-aliasing", "-fno-delete-null-pointer-checks",  # memory is words, whatever lies in them
    "-fno-jump-tables", "-fno-stack-protector",
)  # fmt: skip
X86_64 = "x86_64-unknown-linux-gnu"


@frozen
class Text:
    """A text that is made: its source, the Python modules whose names the source uses, and its variant.

    Attributes:
        name: of the ``.ll`` file, which lies beside the source.
        source: relative to the root of the repository.
        modules: whose constants and records the source knows, by the name from which they are imported.
        macros: of the variant.
        triple: of the machine whose builtin functions the source calls; nothing else depends on it.
    """

    name: str
    source: str
    modules: tuple[str, ...]
    macros: tuple[str, ...] = ()
    triple: str = X86_64

    @property
    def place(self) -> Path:
        return (ROOT / self.source).with_name(f"{self.name}.ll")


PARTS = "staticgrad.runtime.parts"
MPI = ("staticgrad.runtime.running.mpi", "staticgrad.base.world")
TEXTS = (
    Text("results", "runtime/parts/results.c", (f"{PARTS}.results",)),
    Text("foreign", "runtime/parts/foreign.c", (f"{PARTS}.foreign", f"{PARTS}.entry_words")),
    Text("interrupts", "runtime/parts/interrupts.c", (f"{PARTS}.interrupts",)),
    Text("locks", "runtime/parts/locks.c", (f"{PARTS}.locks",)),
    Text("locks_free_threaded", "runtime/parts/locks.c", (f"{PARTS}.locks",), ("FREE_THREADED",)),
    Text("threads", "runtime/parts/threads.c", (f"{PARTS}.threads",)),
    Text("systems", "runtime/parts/systems.c", (f"{PARTS}.threads",)),
    Text("systems_linux", "runtime/parts/systems.c", (f"{PARTS}.threads",), ("LINUX",)),
    Text("processors", "runtime/parts/processors.c", (), triple="riscv64-unknown-linux-gnu"),
    Text("processors_x86_64", "runtime/parts/processors.c", ()),
    Text("processors_aarch64", "runtime/parts/processors.c", (), triple="aarch64-unknown-linux-gnu"),
    Text("xla", "staticgrad/bridges/xla.c", ("staticgrad.bridges.xla",)),
    Text("blocks32", "runtime/callers/blocks.c", ("staticgrad.compiler.machine.machine",), ("KEY=uint32_t",)),
    Text("blocks64", "runtime/callers/blocks.c", ("staticgrad.compiler.machine.machine",), ("KEY=uint64_t",)),
    Text("mpi32", "runtime/running/mpi.c", MPI, ("HANDLE=int32_t",)),
    Text("mpi64", "runtime/running/mpi.c", MPI, ("HANDLE=int64_t",)),
)  # fmt: skip


FILLED = re.compile(r"^FILLED\((\w+)\);", re.MULTILINE)


# -- what a source takes from Python ----------------------------------------------------------------------------------


def words_of(record: type) -> dict[str, int]:
    """The numbers of a record's words by name, those that it inherits too."""
    found = {name: at for base in reversed(record.__mro__) for name, at in vars(base).items()}
    return {name: at for name, at in found.items() if name.isupper() and type(at) is int}


def header(source: str, modules: Sequence[ModuleType]) -> str:
    """The C text of the constants and records of ``modules`` that are named in the text of a source. Members are words,
    or rows of words where there is a gap before the next one that is not read.

    Raises:
        ValueError: two modules give a name that the source uses another meaning, or two words of a record lie in one
            place.
    """
    used = set(re.findall(r"(?<![\w>.])\w+", source)) - set(FILLED.findall(source))  # not members of records
    known: dict[str, object] = {}
    for module in modules:
        for name, value in vars(module).items():
            if name in used and known.setdefault(name, value) != value:
                raise ValueError(f"{name} is {known[name]!r} and {value!r}")
    lines = ["#include <stdint.h>"]
    for name, value in sorted(known.items()):
        if type(value) is int and name.isupper():
            lines.append(f"enum {{ {name} = {value} }};")
        elif isinstance(value, type) and words_of(value):
            lines += [f"struct {name} {{", *_members(words_of(value)), "};"]
    return "\n".join(lines) + "\n"


def _members(words: Mapping[str, int]) -> Iterator[str]:
    at = 0
    for name, place in sorted(words.items(), key=lambda item: item[1]):
        if place < at:
            raise ValueError(f"{name} lies where another word lies")
        if place > at:
            yield f"    int64_t gap{at}[{place - at}];"
        yield f"    int64_t {name};"
        at = place + 1


# -- what clang writes ------------------------------------------------------------------------------------------------


DROPPED = (
    r"; ModuleID|; Function Attrs|source_filename|target (datalayout|triple)|attributes #|!"
    r"|.* void @llvm.lifetime."  # whose form differs between versions of LLVM
)
NOISE = (
    r" *; preds = .*$| #\d+\b|,? ![\w.]+ !\d+| (dso_local|local_unnamed_addr|unnamed_addr|noundef|nocapture"
    r"|nonnull|readonly|writeonly|readnone|noalias|immarg|returned)\b|(?<=ptr) align \d+(?= %)"
)
ADDRESS = r"ptrtoint \(ptr @(\w+) to i(?:32|64)\)"


def cleaned(text: str, filled: Sequence[str]) -> str:
    """The functions of a module as clang writes it, with a dollar sign before the names that are filled in."""
    lines = [line for line in text.splitlines() if not re.match(DROPPED, line)]
    lines = [line for line in lines if not re.match(rf"@({'|'.join(filled) or '-'}) = external", line)]
    body = re.sub(NOISE, "", "\n".join(lines), flags=re.MULTILINE)
    body = re.sub(ADDRESS, lambda match: f"${match[1]}" if match[1] in filled else match[0], body)
    return re.sub(r"\n{3,}", "\n\n", body).strip("\n") + "\n"


@cache
def compiler_major() -> int | None:
    """The major version of the clang that is called; None where there is none on this machine."""
    if shutil.which(COMPILER) is None:
        return None
    said = subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"version (\d+)", said)
    return int(found[1]) if found else None


def whole_source(text: Text) -> str:
    """The source of a text with the headers that it includes."""
    found: dict[Path, str] = {}

    def read(path: Path) -> None:
        if path not in found:
            found[path] = path.read_text(encoding="ascii")
            for name in re.findall(r'#include "(.*)"', found[path]):
                read((path.parent / name).resolve())

    read(ROOT / text.source)
    return "\n".join(found.values())


def inputs(text: Text) -> tuple[str, str]:
    """The header that a text is compiled with, and the digest of all that it is made of."""
    source = whole_source(text)
    known = header(source, [importlib.import_module(name) for name in text.modules])
    parts = (source, known, *text.macros, text.triple, *FLAGS, DROPPED, NOISE, ADDRESS)
    return known, hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def first_line(text: Text) -> str:
    """The first line of a text that is as new as its source."""
    made = " ".join(("make parts", *text.macros))
    return f"; Made of {Path(text.source).name} by {made}, from {inputs(text)[1]}. Do not edit.\n"


def made(text: Text) -> str:
    """The text, compiled from its source.

    Raises:
        subprocess.CalledProcessError: the compiler refuses the source; it has said why.
    """
    known, _ = inputs(text)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "words.h"
        place.write_text(known, encoding="ascii")
        macros = [f"-D{macro}" for macro in text.macros]
        command = [COMPILER, f"--target={text.triple}", *FLAGS, *macros, "-include", str(place), "-o", "-", text.source]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return first_line(text) + "\n" + cleaned(done.stdout, FILLED.findall(whole_source(text)))


def main() -> int:
    if compiler_major() != CLANG_MAJOR:
        print(f"make parts needs clang {CLANG_MAJOR}, whose text is checked in; here is {compiler_major()}")
        return 1
    differing = 0
    for text in TEXTS:
        new = made(text)
        if not text.place.exists() or text.place.read_text(encoding="ascii") != new:
            print(text.place.relative_to(ROOT))
            differing += 1
            if "--check" not in sys.argv[1:]:
                text.place.write_text(new, encoding="ascii")
    return int("--check" in sys.argv[1:] and differing > 0)


if __name__ == "__main__":
    sys.exit(main())
