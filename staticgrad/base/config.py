"""The environment: switches for debugging, in one typed table that refuses unknown names, and what the machine has."""

from __future__ import annotations

import functools
import os
import sys

from staticgrad.base.frozen import frozen

PREFIX = "STATICGRAD_"
TARGETS = ("avx512", "avx2", "neon", "generic")
EXTENDED = ("avx512-bf16", "avx512-vnni", "avx2-vnni")  # with instructions for products of short numbers


@frozen
class Switch:
    """An environment variable ``STATICGRAD_<name>``: its default, the values it may have (none: any), its meaning."""

    name: str
    default: str
    values: tuple[str, ...]
    doc: str


SWITCHES = {
    switch.name: switch
    for switch in (
        Switch("BACKEND", "compiled", ("compiled", "reference"), "`reference` runs the NumPy interpreter instead"),
        Switch("TARGET", "", ("", *TARGETS, *(f"{name}-small" for name in TARGETS), "small", *EXTENDED),
               "force the instruction set of compiled programs; `-small`: with small caches, pages and thresholds"),
        Switch("MEMORY", "plan", ("plan", "none", "poison"),
               "`none` shares no memory between buffers, `poison` fills dead ranges with NaN patterns"),
        Switch("DISABLE", "", (), "comma-separated names of passes to leave out"),
        Switch("VERIFY", "0", ("0", "1", "2"),
               "verify the graph after each pass and the plan after placement; `2`: also run each step beside NumPy"),
        Switch("PRINT_AFTER", "", (), "comma-separated names of passes after which the graph is printed"),
        Switch("DUMP_DIR", "", (), "write every stage of every compilation into a numbered file there"),
        Switch("EXPLAIN", "0", ("0", "1"),
               "the text of kernels tells which plans of a product or convolution lost, and by how much"),
        Switch("DEBUG", "0", ("0", "1", "2", "3", "4", "5"),
               "how much of a compilation is told on stderr; from `1` on tracebacks have all frames"),
        Switch("THREADS", "", (), "the default of `Session(num_threads=)`"),
        Switch("PROGRESS", "1", ("0", "1"), "a line on stderr while a compilation takes more than two seconds"),
        Switch("TIERS", "1", ("0", "1", "first"),
               "`0` makes optimised code alone; `first`: only the quick code that else runs until that is there"),
        Switch("CACHE", "1", ("0", "1"),
               "keep compiled programs and kernels on disk, and kernels in memory for other programs"),
        Switch("CACHE_DIR", "", (), "where compiled programs are kept"),
        Switch("MPI_TIMEOUT", "1800", (), "seconds that a rank waits for the others before it ends them, `0` for ever"),
    )
}  # fmt: skip


def get(name: str) -> str:
    """The value of a switch now; a value that it does not know is refused."""
    switch = SWITCHES[name]
    value = os.environ.get(PREFIX + name, switch.default)
    if switch.values and value not in switch.values:
        allowed = ", ".join(repr(v) for v in switch.values if v)
        raise ValueError(f"{PREFIX}{name}={value!r}: expected one of {allowed}")
    return value


def names(name: str) -> frozenset[str]:
    """The value of a switch that holds comma-separated names."""
    return frozenset(part.strip() for part in get(name).split(",") if part.strip())


def refuse_unknown() -> None:
    """A misspelt switch would silently do nothing: raise for every unknown ``STATICGRAD_`` variable."""
    unknown = sorted(key for key in os.environ if key.startswith(PREFIX) and key[len(PREFIX) :] not in SWITCHES)
    if unknown:
        known = ", ".join(PREFIX + name for name in SWITCHES)
        raise ValueError(f"unknown switch {', '.join(unknown)}; known are {known}")


# What launchers of MPI tell the processes that they start: how many there are on this machine.
NEIGHBOURS = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE")


def available_cores() -> int:
    """The number of cores that this process may use: an equal share where ``mpiexec`` started several here."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this operating system
        cores = os.cpu_count() or 1
    told = next((number for name in NEIGHBOURS if (number := os.environ.get(name, "")).isdecimal()), "1")
    return max(1, cores // max(1, int(told)))


def version() -> str:
    """The version of this package, as the facade says it, which stands above all that asks."""
    found: str = vars(sys.modules["staticgrad"])["__version__"]
    return found


def host_arch() -> str:
    """The architecture of this machine, as instruction sets name it."""
    import platform

    name = platform.machine()
    return {"AMD64": "x86_64", "arm64": "aarch64"}.get(name, name)


@functools.cache
def told_features() -> frozenset[str] | None:
    """The features of the first processor by Linux under LLVM's names, at least those that targets ask for: what the
    processor has and the system saves the registers of. None on other systems and processors."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = next((line for line in file if line.startswith("flags")), "")
    except (OSError, UnicodeDecodeError):
        return None
    # Linux's name: LLVM's
    names = {"bmi1": "bmi", "avx512_bf16": "avx512bf16", "avx512_vnni": "avx512vnni", "avx_vnni": "avxvnni"}
    return frozenset(names.get(flag, flag) for flag in flags.partition(":")[2].split()) or None
