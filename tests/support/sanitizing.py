"""LLVM text goes in, the same with every access to memory told to a sanitizer comes out: LLVM's own passes for that are
not in llvmlite's library, and the sanitizers' libraries, which come with gcc, only ask to be called.

Before each load, store, copy, masked or gathered access stands a call that says where and how many bytes: for
``thread`` of ``__tsan_…``, for ``address`` of ``__asan_…``. Atomic accesses go through ``__tsan_atomic…``, since they
order others. Masked accesses ask ``told_lanes`` of ``callers.c``, which looks at each lane. An instruction that is not
known here is an error: nothing passes unseen.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

KINDS = ("thread", "address")
BYTES = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8}
ORDERS = {"monotonic": 0, "acquire": 2, "release": 3, "acq_rel": 4, "seq_cst": 5}
HELPERS = {
    "thread": [
        *[f"declare void @__tsan_{way}{n}(ptr)" for way in ("read", "write") for n in (1, 2, 4, 8, 16)],
        *[f"declare void @__tsan_{way}_range(ptr, i64)" for way in ("read", "write")],
        "declare i64 @__tsan_atomic64_load(ptr, i32)", "declare void @__tsan_atomic64_store(ptr, i64, i32)",
        *[f"declare i64 @__tsan_atomic64_fetch_{how}(ptr, i64, i32)" for how in ("add", "sub", "or", "and")],
        "declare i64 @__tsan_atomic64_exchange(ptr, i64, i32)",
        "declare i64 @__tsan_atomic64_compare_exchange_val(ptr, i64, i64, i32, i32)",
    ],
    "address": [f"declare void @__asan_{way}N(ptr, i64)" for way in ("load", "store")],
}  # fmt: skip
LANES = ["declare void @told_lanes(ptr, i64, i64, i32)", "declare void @told_places(ptr, i64, i64, i32)"]
MOST = 64  # lanes

_TYPE = r"(?:<[^>]*>|\{[^}]*\}|\[[^\]]*\]|\w+)"
_LOAD = re.compile(rf"load (?:volatile )?({_TYPE}), ptr ([%@][\w.]+)")
_STORE = re.compile(rf"store (?:volatile )?({_TYPE}) .*, ptr ([%@][\w.]+)")
_MASKED = re.compile(r"call .*@llvm\.masked\.(load|store|gather|scatter)\.(v\d+\w+)\.\w+\((.*)\)")
_MOVED = re.compile(r"call .*@llvm\.(memcpy|memmove|memset)\.[\w.]+\((.*)\)")
_ATOMIC_LOAD = re.compile(r"(%[\w.]+) = load atomic (i64|ptr), ptr ([%@][\w.]+) (\w+)")
_ATOMIC_STORE = re.compile(r"store atomic i64 ([%@\w.-]+), ptr ([%@][\w.]+) (\w+)")
_CHANGED = re.compile(r"(%[\w.]+) = atomicrmw (add|sub|or|and|xchg) ptr ([%@][\w.]+), i64 ([%@\w.-]+) (\w+)")
_SWAPPED = re.compile(r"(%[\w.]+) = cmpxchg ptr ([%@][\w.]+), i64 ([%@\w.-]+), i64 ([%@\w.-]+) (\w+) (\w+)")
_ACCESS = re.compile(r"(?:^|= )(?:tail )?(load|store|atomicrmw|cmpxchg|fence|call .*@llvm\.(?:masked|mem\w+)\.)")


def nbytes(type_: str) -> int:
    """The bytes that a value of an LLVM type takes in memory."""
    if vector := re.fullmatch(r"[<\[](\d+) x (.*)[>\]]", type_):
        return int(vector[1]) * nbytes(vector[2])
    if integer := re.fullmatch(r"i(\d+)", type_):
        return max(1, int(integer[1]) // 8)
    return BYTES[type_]


def instrumented(text: str, kind: str) -> str:
    """The module with every access told to the sanitizer of a kind (``KINDS``).

    Raises:
        ValueError: an access in a form that is not known here.
    """
    defined = set(re.findall(r"^(?:declare|define)[^@]*@([\w.]+)", text, re.MULTILINE))
    names = itertools.count()
    lines: list[str] = []
    needs_table = -1
    for line in text.splitlines():
        if line.startswith("define"):
            needs_table = len(lines) + 1
        told = list(_told(line.strip(), kind, names)) if line.startswith(" ") else None
        if told and any("%told.table" in row for row in told) and needs_table >= 0:
            at = needs_table + (1 if lines[needs_table].rstrip().endswith(":") else 0)
            lines.insert(at, f"  %told.table = alloca [{MOST} x ptr]")
            needs_table = -1
        lines += [line] if told is None else [f"  {row}" for row in told]
    wanted = [row for row in HELPERS[kind] + LANES if re.search(r"@([\w.]+)", row)[1] not in defined]  # type: ignore[index]
    return "\n".join([*lines, *wanted, ""])


def _told(line: str, kind: str, names: Iterator[int]) -> Iterator[str]:
    """The rows that take the place of an instruction."""
    if not _ACCESS.search(line) or line.startswith("fence "):  # which orders accesses, and is none
        yield line
    elif " atomic " in line or "atomicrmw" in line or "cmpxchg" in line:
        yield from _atomic(line, names) if kind == "thread" else [line]
    elif found := _MASKED.search(line):
        yield from _masked(found[1], found[2], found[3], names)
        yield line
    elif found := _MOVED.search(line):
        to, source, count, *_ = [part.split()[-1] for part in found[2].split(",")]
        yield from _range("write", to, count, kind)
        if found[1] != "memset":
            yield from _range("read", source, count, kind)
        yield line
    elif found := _LOAD.search(line):
        yield from _plain("read", nbytes(found[1]), found[2], kind)
        yield line
    elif found := _STORE.search(line):
        yield from _plain("write", nbytes(found[1]), found[2], kind)
        yield line
    else:
        raise ValueError(f"an access that is not known: {line}")


def _plain(way: str, count: int, address: str, kind: str) -> Iterator[str]:
    if kind == "thread" and count in (1, 2, 4, 8):
        yield f"call void @__tsan_{way}{count}(ptr {address})"
    else:
        yield from _range(way, address, str(count), kind)


def _range(way: str, address: str, count: str, kind: str) -> Iterator[str]:
    name = f"__tsan_{way}_range" if kind == "thread" else f"__asan_{'load' if way == 'read' else 'store'}N"
    yield f"call void @{name}(ptr {address}, i64 {count})"


def _masked(what: str, vector: str, arguments: str, names: Iterator[int]) -> Iterator[str]:
    """Tell the lanes whose bit of the mask is set: of one place, or of as many places as there are lanes."""
    shape = re.match(r"v(\d+)(\D+)(\d+)", vector)
    assert shape is not None
    lanes, itemsize = int(shape[1]), int(shape[3]) // 8
    operands = _operands(arguments)
    is_write = what in ("store", "scatter")
    place = operands[1 if is_write else 0]
    mask = next(operand for operand in operands if operand.startswith(f"<{lanes} x i1>"))
    n = next(names)
    yield f"%told.bits{n} = bitcast {mask} to i{lanes}"
    bits = f"%told.bits{n}"
    if lanes < 64:
        yield f"%told.wide{n} = zext i{lanes} %told.bits{n} to i64"
        bits = f"%told.wide{n}"
    function = "told_lanes"
    if what in ("gather", "scatter"):
        assert lanes <= MOST
        yield f"store {place}, ptr %told.table, align 8"
        place, function = "ptr %told.table", "told_places"
    yield f"call void @{function}({place}, i64 {bits}, i64 {itemsize}, i32 {int(is_write)})"


def _operands(text: str) -> list[str]:
    """The operands of a call: commas inside brackets separate none."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "<([{") - (letter in ">)]}")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [part.strip() for part in found]


def _atomic(line: str, names: Iterator[int]) -> Iterator[str]:
    if found := _ATOMIC_LOAD.match(line):
        result, type_, address, order = found.groups()
        loaded = result if type_ == "i64" else f"%told.word{next(names)}"
        yield f"{loaded} = call i64 @__tsan_atomic64_load(ptr {address}, i32 {ORDERS[order]})"
        if type_ == "ptr":
            yield f"{result} = inttoptr i64 {loaded} to ptr"
    elif found := _ATOMIC_STORE.match(line):
        value, address, order = found.groups()
        yield f"call void @__tsan_atomic64_store(ptr {address}, i64 {value}, i32 {ORDERS[order]})"
    elif found := _CHANGED.match(line):
        result, how, address, value, order = found.groups()
        name = "exchange" if how == "xchg" else f"fetch_{how}"
        yield f"{result} = call i64 @__tsan_atomic64_{name}(ptr {address}, i64 {value}, i32 {ORDERS[order]})"
    elif found := _SWAPPED.match(line):
        result, address, expected, value, order, failed = found.groups()
        n = next(names)
        operands = f"ptr {address}, i64 {expected}, i64 {value}, i32 {ORDERS[order]}, i32 {ORDERS[failed]}"
        yield f"%told.old{n} = call i64 @__tsan_atomic64_compare_exchange_val({operands})"
        yield f"%told.same{n} = icmp eq i64 %told.old{n}, {expected}"
        yield f"%told.pair{n} = insertvalue {{ i64, i1 }} poison, i64 %told.old{n}, 0"
        yield f"{result} = insertvalue {{ i64, i1 }} %told.pair{n}, i1 %told.same{n}, 1"
    else:
        raise ValueError(f"an atomic access that is not known: {line}")
