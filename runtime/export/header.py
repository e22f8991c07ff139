"""The C header of an exported program: its interface comes in, text for C99 and C++ goes out.

Every array has a constant with its place in the table of pointers, and a comment with its shape and type; every
variable has one with its offset in the state. Names of C are made of the graph's: ``layer/weight`` becomes
``LAYER_WEIGHT``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from staticgrad.base.addresses import ALIGNMENT
from staticgrad.base.types import TensorType, sizes
from staticgrad.runtime.callers.cfunction import SIGNATURES
from staticgrad.runtime.export.interface import Entry, ExportInterface, NamedType, StateArray
from staticgrad.runtime.export.names import fixed_names, initial_name, word

SLOTS = "int NAME(const void *const *in, void *const *out, void *workspace, void *state)"
ON_THREADS = (
    "int NAME_on_threads(const void *const *in, void *const *out, void *workspace, void *state,"
    " struct staticgrad_threads *threads)"
)
THREADS = """
/* The caller's threads, the first member of a struct of its own. run has part(table, chunk, worker) called once for
 * each chunk below chunks, in any order, and returns when all have been: workers that run at once have different
 * numbers from 0, below the number of threads that the functions allow. poll is asked now and then by programs that
 * take long, and ends them with status -1 unless it returns 0. stopped and committed are 0 before a call, which writes
 * them. */
#ifndef STATICGRAD_THREADS
#define STATICGRAD_THREADS
typedef void staticgrad_part(void *table, int64_t chunk, int64_t worker);
struct staticgrad_threads {
    void (*run)(struct staticgrad_threads *threads, staticgrad_part *part, void *table, int64_t chunks);
    int (*poll)(struct staticgrad_threads *threads);
    int64_t stopped, committed;
};
#endif""".splitlines()
C_TYPES = {
    "float32": "float", "float64": "double", "bool": "uint8_t, 0 or 1", "float16": "uint16_t, the bits of a binary16",
    "bfloat16": "uint16_t, the upper half of a float",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip


def header(interface: ExportInterface, *, has_initial: bool, version: str) -> str:
    """The text of the header.

    Args:
        has_initial: whether the state as it begins is a constant of the object.
        version: staticgrad's.
    """
    guard, constants = f"{interface.name.upper()}_H", _Constants(interface)
    lines = [
        f"/* {interface.name}: compiled by staticgrad {version} for {interface.target}.",
        " *",
        " * Functions return 0; a positive number where a check of the program failed, which is listed with them, and",
        " * then no state has been written; a negative one where the call was wrong: a pointer that is needed is null.",
        " * They allocate nothing and may run at once, each with a workspace of its own, and where one writes a state",
        " * with a state of its own. Arrays are row-major, without gaps, and aligned as their elements. */",
        f"#ifndef {guard}", f"#define {guard}",
        "#include <stddef.h>", "#include <stdint.h>",
        "#ifdef __cplusplus", 'extern "C" {', "#endif",
        *_state(interface, has_initial, constants),
        *(THREADS if any(entry.threads for entry in interface.entries) else ()),
    ]  # fmt: skip
    for entry in interface.entries:
        lines += ["", *_entry(entry, constants)]
    lines += ["", "#ifdef __cplusplus", "}", "#endif", f"#endif /* {guard} */", ""]
    return "\n".join(lines)


def _state(interface: ExportInterface, has_initial: bool, constants: _Constants) -> Iterator[str]:
    state, prefix = interface.state, interface.name.upper()
    yield ""
    yield f"/* Workspaces and the state begin at a multiple of {prefix}_ALIGNMENT bytes. */"
    yield f"#define {prefix}_ALIGNMENT {ALIGNMENT}"
    if not state.nbytes:
        return
    yield ""
    if has_initial:
        yield f"/* The state, a copy of {initial_name(interface.name)} at first: offsets in bytes. */"
    else:
        yield "/* The state, which begins as the file beside this header: offsets in bytes. */"
    yield f"#define {prefix}_STATE_BYTES {state.nbytes}"
    if state.draws:
        yield f"#define {prefix}_STATE_SEED 0 /* int64_t, of random numbers */"
        yield f"#define {prefix}_STATE_RUN 8 /* int64_t: how many runs have drawn random numbers */"
    for array in state.arrays:
        yield f"#define {constants.name(f'{prefix}_STATE_', array)} {array.offset} /* {_described(array)} */"
    if has_initial:
        yield f"extern const unsigned char {initial_name(interface.name)}[{prefix}_STATE_BYTES];"


def _entry(entry: Entry, constants: _Constants) -> Iterator[str]:
    prefix = entry.name.upper()
    yield f"/* {entry.name} */"
    if entry.signature == "slots":
        yield f"#define {prefix}_WORKSPACE_BYTES {entry.workspace_bytes}"
        yield f"#define {prefix}_STACK_BYTES {entry.stack_bytes} /* that a call takes at most */"
        yield from _places(entry.feeds, f"{prefix}_IN", constants)
        yield from _places(entry.results, f"{prefix}_OUT", constants)
        prototype = SLOTS
    else:
        for way, arrays in (("in", entry.feeds), ("out", entry.results)):
            for place, array in enumerate(arrays):
                yield f"/* {way}[{place}]: {_described(array)} */"
        yield f"/* A call takes {entry.stack_bytes} bytes of the stack at most. */"
        prototype = SIGNATURES[entry.signature].prototype  # type: ignore[index]
    for number, check in enumerate(entry.checks, 1):
        yield f"/* status {number}: {_comment(str(check))} */"
    if entry.signature == "slots" and not entry.uses_state:
        yield "/* It has no state: that pointer may be null. */"
    yield f"{prototype.replace('NAME', entry.name)};"
    if entry.threads:
        yield f"/* As {entry.name}, with at most {entry.threads} threads. */"
        yield f"{ON_THREADS.replace('NAME', entry.name)};"


def _places(arrays: Sequence[NamedType], prefix: str, constants: _Constants) -> Iterator[str]:
    yield "enum {"
    for place, array in enumerate(arrays):
        yield f"    {constants.name(f'{prefix}_', array)} = {place}, /* {_described(array)} */"
    yield f"    {prefix}S = {len(arrays)}"
    yield "};"


class _Constants:
    """The names of a header's constants, each once. Those of sizes and counts follow from the names of entries alone;
    an array whose constant is taken gets a number after it."""

    def __init__(self, interface: ExportInterface) -> None:
        self._used = set(fixed_names(interface.name, [entry.name for entry in interface.entries]))

    def name(self, prefix: str, array: NamedType | StateArray) -> str:
        """The name of an array's constant."""
        stem = constant = f"{prefix}{word(array.name).upper()}"
        number = 1
        while constant in self._used:
            number += 1
            constant = f"{stem}_{number}"
        self._used.add(constant)
        return constant


def _described(array: NamedType | StateArray) -> str:
    """An array's name and type, for a comment."""
    return f"{_comment(array.name)}: {type_text(array.type)}"


def type_text(type_: TensorType) -> str:
    """An array in C's terms: ``float [32][10]``, ``double``."""
    shape = "".join(f"[{size}]" for size in sizes(type_.shape))
    return f"{C_TYPES[type_.dtype.name]}{' ' if shape else ''}{shape}"


def _comment(text: str) -> str:
    """A text as a comment may hold it, in one line."""
    return " ".join(text.split()).replace("*/", "* /").replace("/*", "/ *").encode("ascii", "replace").decode()
