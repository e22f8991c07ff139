"""Programs for another architecture, run by an emulator: graphs with feeds come in, results and state go out.

Each program is compiled to object code for its target. All of them and a driver (``cross.c``) are linked into one
executable, which is started once: the compiler and the emulator take longer to start than most programs to run. Memory
that the caller hands over ends where a page begins that nobody may touch.
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
from staticgrad.compiler.emit.codegen import objects
from staticgrad.compiler.emit.target import named
from staticgrad.compiler.options import CompileOptions
from staticgrad.compiler.pipeline import compile_region
from staticgrad.compiler.program import (
    ConstantSlot,
    FeedSlot,
    FetchSlot,
    KeySlot,
    Program,
    Slot,
    StateSlot,
)
from staticgrad.compiler.regions.cut import cut
from staticgrad.graph import Graph, Node, Tensor
from staticgrad.runtime.binding import types_of
from staticgrad.types import sizes

Array = np.ndarray[Any, np.dtype[Any]]
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
PACKAGES = {COMPILER: "gcc-aarch64-linux-gnu", EMULATOR: "qemu-user"}  # Debian's
DRIVER = ROOT / "tests" / "support" / "cross.c"
SECONDS = 600  # after which the emulator is ended


def missing() -> str:
    """What this machine lacks for emulated runs, as one line; empty if nothing."""
    lacking = [name for name in PACKAGES if shutil.which(name) is None]
    packages = " ".join(PACKAGES[name] for name in lacking)
    return f"no {' and no '.join(lacking)}: make cross (apt-get install {packages})" if lacking else ""


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
        self.program: Program = compile_region(region, CompileOptions(named(target)))
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
    executable = _linked(runs, folder)
    done = subprocess.run(
        [EMULATOR, executable, folder / "runs", folder / "results"], capture_output=True, text=True, timeout=SECONDS
    )
    if done.returncode:
        raise RuntimeError(f"{EMULATOR}: status {done.returncode}: {done.stderr.strip()}")
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


def _linked(runs: Sequence[Run], folder: Path) -> Path:
    """The executable of a driver and the programs of all runs."""
    files: list[str | Path] = []
    for target in sorted({run.target for run in runs}):
        texts = [
            text
            for number, run in enumerate(runs)
            if run.target == target
            for text in _renamed(run.program.modules, f".of{number}")
        ]
        for number, content in enumerate(objects(texts, named(target))):
            files.append(folder / f"{target}{number}.o")
            (folder / f"{target}{number}.o").write_bytes(content)
    table = folder / "programs.c"
    declared = "".join(f'int main_of{n}(void **, void *, void *) __asm__("main.of{n}");\n' for n in range(len(runs)))
    listed = ", ".join(f"main_of{n}" for n in range(len(runs)))
    table.write_text(f"{declared}int (*const programs[])(void **, void *, void *) = {{{listed}}};\n", encoding="ascii")
    executable = folder / "programs"
    subprocess.run([COMPILER, "-O1", "-static", "-o", executable, DRIVER, table, *files, "-lm"], check=True)
    return executable


def _renamed(texts: Sequence[str], ending: str) -> list[str]:
    """The modules of a program with other names for all that they define, so that no two programs define the same."""
    own = {name for text in texts for name in re.findall(r"^(?:define [^@\n]*)?@([\w.]+)", text, re.MULTILINE)}

    def rename(match: re.Match[str]) -> str:
        return f"{match[0]}{ending}" if match[1] in own else match[0]

    return [re.sub(r"@([\w.]+)", rename, text) for text in texts]
