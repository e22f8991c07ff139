"""Programs for another architecture, run by an emulator: graphs with feeds come in, results and state go out.

Each program is compiled to object code for its target. All of them and a driver (``cross.c``, ``cross_wasm.mjs``) are
linked into one executable, which is started once: the compiler and the emulator take longer to start than most programs
to run. No library of mathematical functions is linked. Memory that the caller hands over ends where a page begins that
nobody may touch, or where the machine has no pages at bytes that must stay as they are.

A ``Machine`` says how programs of some targets are linked and run, and ``missing`` what this machine lacks for that.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from source_tree import ROOT

import staticgrad as sg
from staticgrad.base.types import sizes
from staticgrad.compiler.native.codegen import objects
from staticgrad.compiler.native.triples import target_for
from staticgrad.compiler.options import CompileOptions
from staticgrad.compiler.pipeline import compile_region
from staticgrad.compiler.program.program import Program
from staticgrad.compiler.program.slots import ConstantSlot, FeedSlot, FetchSlot, KeySlot, Slot, StateSlot
from staticgrad.compiler.regions.cut import cut
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.runtime.running.binding import types_of

Array = np.ndarray[Any, np.dtype[Any]]
SUPPORT = ROOT / "tests" / "support"
SECONDS = 600  # after which the emulator is ended


@dataclass(frozen=True, eq=False)
class Machine:
    """How programs are linked and run. The ``linker`` is given its own words, the driver's files and the programs; the
    ``emulator`` its own words, in which "{}" is the executable, and the files of runs and results, if it is ``told``
    them: else they are those in its folder."""

    packages: Mapping[str, str]  # Debian's, of each program
    linker: tuple[str, ...]
    drivers: tuple[str, ...]
    emulator: tuple[str, ...]
    told: bool = True


def _linux(arch: str) -> Machine:
    linker, emulator = f"{arch}-linux-gnu-gcc", f"qemu-{arch}"
    packages = {linker: f"gcc-{arch}-linux-gnu", emulator: "qemu-user"}
    return Machine(packages, (linker, "-O1", "-static"), ("cross.c", "cross_linux.c"), (emulator, "{}"))


def _cortex_m(cpu: str, board: str, heap: int, *floats: str) -> Machine:
    linker, emulator = "arm-none-eabi-gcc", "qemu-system-arm"
    packages = {linker: "gcc-arm-none-eabi libnewlib-arm-none-eabi", emulator: "qemu-system-arm"}
    flags = (f"-mcpu={cpu}", "-mthumb", *floats, "-O1", "-nostartfiles", "-Wl,-z,noexecstack",
             f"-Wl,--defsym=heap_begin={heap}", "-T", str(SUPPORT / "cross_cortex_m.ld"))  # fmt: skip
    command = (emulator, "-M", board, "-display", "none", "-semihosting-config", "enable=on,target=native",
               "-kernel", "{}")  # fmt: skip
    return Machine(packages, (linker, *flags), ("cross.c", "cross_cortex_m.c"), command, told=False)


LINUX_ARM, LINUX_RISCV = _linux("aarch64"), _linux("riscv64")
WASM = Machine(
    {"wasm-ld": "lld", "node": "nodejs"},
    ("wasm-ld", "--no-entry", "--export-all", "-z", "stack-size=1048576"),
    (),
    ("node", str(SUPPORT / "cross_wasm.mjs"), "{}"),
)
MACHINES = {
    "neon": LINUX_ARM,
    "aarch64-unknown-linux-gnu": LINUX_ARM,
    "riscv64": LINUX_RISCV,
    "cortex-m4": _cortex_m("cortex-m4", "mps2-an386", 0x21000000, "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
    "cortex-m4-soft": _cortex_m("cortex-m4", "mps2-an386", 0x21000000, "-mfloat-abi=soft"),
    "cortex-m7": _cortex_m("cortex-m7", "mps2-an500", 0x60000000, "-mfloat-abi=hard", "-mfpu=fpv5-d16"),
    "wasm32": WASM,
    "wasm32-simd128": WASM,
}


def machine_of(target: str) -> Machine:
    """The machine that runs a target's programs, and those of its twins."""
    return MACHINES[target.removesuffix("-small").removesuffix("-size")]


def missing(target: str = "neon") -> str:
    """What this machine lacks for emulated runs, as one line; empty if nothing."""
    packages = machine_of(target).packages
    lacking = [name for name in packages if shutil.which(name) is None]
    wanted = " ".join(packages[name] for name in lacking)
    return f"no {' and no '.join(lacking)}: make cross (apt-get install {wanted})" if lacking else ""


@dataclass(frozen=True)
class Found:
    """The results of one run, and the variables that it has written, by name."""

    results: list[Array]
    state: dict[str, Array]

    @property
    def arrays(self) -> dict[str, Array]:
        """All of them by what they are."""
        return {**{f"result {n}": array for n, array in enumerate(self.results)}, **self.state}


class Run:
    """One call of a program: what it fetches and is fed, with the variables' first values."""

    def __init__(
        self, graph: Graph, fetches: Sequence[Tensor | Node], feeds: Mapping[Tensor, Array], target: str = "neon"
    ) -> None:
        self.graph = graph
        self.fetches = list(dict.fromkeys(fetches))
        self.feeds = {x: np.array(array, x.dtype, order="C") for x, array in feeds.items()}
        self.target = target
        types = types_of(list(self.feeds), [array.shape for array in self.feeds.values()])
        region = cut(graph, self.fetches, types)
        self.program: Program = compile_region(region, CompileOptions(target_for(target)))
        self.written = [slot.name for slot in self.program.slots if isinstance(slot, StateSlot) and slot.written]

    def interpreted(self) -> Found:
        """By the interpreter, which is what defines the ops."""
        with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
            patch.setenv("STATICGRAD_BACKEND", "reference")
            with sg.Session(self.graph) as session:
                found = session.run(self.fetches, self.feeds)
                state = {name: session.store.array(name) for name in self.written}
        return Found([np.asarray(y) for y, f in zip(found, self.fetches, strict=True) if isinstance(f, Tensor)], state)

    def memory(self, session: sg.Session, slot: Slot) -> Array:
        """What lies in a slot before the run. What the program is to write is full of 0xFF bytes."""
        match slot:
            case FeedSlot():
                return list(self.feeds.values())[slot.index]
            case FetchSlot():
                return np.full(slot.type.nbytes, 0xFF, np.uint8).view(slot.type.dtype).reshape(sizes(slot.type.shape))
            case StateSlot():
                return session.store.array(slot.name).copy()
            case ConstantSlot():
                return slot.value
            case KeySlot():
                return session.store.random
            case _:
                raise NotImplementedError(f"a program with a {type(slot).__name__}")


def emulated(runs: Sequence[Run], folder: Path) -> list[Found]:
    """All runs, one after the other, by the emulated processor. ``folder`` gets what is made on the way.

    Raises:
        RuntimeError: the emulator has failed, as it does where a program touches memory that is not its own.
    """
    memories = []
    with (folder / "runs").open("wb") as file:
        _write(file, len(runs))
        for number, run in enumerate(runs):
            with sg.Session(run.graph) as session:
                memories.append([run.memory(session, slot) for slot in run.program.slots])
                _write(file, number, run.program.arena_bytes, len(memories[-1]))
                for slot, array in zip(run.program.slots, memories[-1], strict=True):
                    _write(file, array.nbytes, int(not isinstance(slot, FeedSlot | FetchSlot)))
                    file.write(array.tobytes())
    (machine,) = {machine_of(run.target) for run in runs}
    executable = _linked(runs, machine, folder)
    command = [word.replace("{}", str(executable)) for word in machine.emulator]
    files = [folder / "runs", folder / "results"] if machine.told else []
    done = subprocess.run([*command, *files], capture_output=True, text=True, timeout=SECONDS, cwd=folder)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: status {done.returncode}: {done.stderr.strip()}")
    found = []
    with (folder / "results").open("rb") as file:
        for run, before in zip(runs, memories, strict=True):
            status = int.from_bytes(file.read(8), "little", signed=True)
            if status:
                raise RuntimeError(f"a check of a program has failed: {run.program.checks[status - 1]}")
            after = [np.frombuffer(file.read(a.nbytes), a.dtype).reshape(a.shape) for a in before]
            found.append(_found(run, before, after))
    return found


def _found(run: Run, before: Sequence[Array], after: Sequence[Array]) -> Found:
    results: dict[int, Array] = {}
    state: dict[str, Array] = {}
    for slot, old, new in zip(run.program.slots, before, after, strict=True):
        if isinstance(slot, FetchSlot):
            results[slot.index] = new
        elif isinstance(slot, StateSlot) and slot.written:
            state[slot.name] = new
        else:
            assert old.tobytes() == new.tobytes(), f"{slot} has been written"
    return Found([results[index] for index in sorted(results)], state)


def _write(file: BinaryIO, *numbers: int) -> None:
    file.write(np.array(numbers, "<i8").tobytes())


def _linked(runs: Sequence[Run], machine: Machine, folder: Path) -> Path:
    """The executable of a driver and the programs of all runs."""
    files: list[str | Path] = []
    for target in sorted({run.target for run in runs}):
        texts = [
            text
            for number, run in enumerate(runs)
            if run.target == target
            for text in _renamed(run.program.modules, f".of{number}")
        ]
        for number, content in enumerate(objects(texts, target_for(target))):
            files.append(folder / f"{target}{number}.o")
            (folder / f"{target}{number}.o").write_bytes(content)
    if machine.drivers:
        table = folder / "programs.c"
        names = range(len(runs))
        declared = "".join(f'int main_of{n}(void **, void *, void *) __asm__("main.of{n}");\n' for n in names)
        listed = ", ".join(f"main_of{n}" for n in names)
        table.write_text(
            f"{declared}int (*const programs[])(void **, void *, void *) = {{{listed}}};\n", encoding="ascii"
        )
        files = [*(SUPPORT / name for name in machine.drivers), table, *files]
    executable = folder / "programs"
    subprocess.run([*machine.linker, "-o", executable, *files], check=True)
    return executable


def _renamed(texts: Sequence[str], ending: str) -> list[str]:
    """The modules of a program with other names for all that they define, so that no two programs define the same."""
    own = {name for text in texts for name in re.findall(r"^(?:define [^@\n]*)?@([\w.]+)", text, re.MULTILINE)}

    def rename(match: re.Match[str]) -> str:
        return f"{match[0]}{ending}" if match[1] in own else match[0]

    return [re.sub(r"@([\w.]+)", rename, text) for text in texts]
