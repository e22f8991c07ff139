"""The program of a leaf: an executable, as exports see it, comes in; an entry that is loaded goes out.

The program is compiled as an export for this machine is: for known sizes, for one thread, keeping nothing from call to
call. Its code is linked of kernels that other programs of this process, and those on disk, may have. Where programs
have files (``runtime.export.program_file``) it has one, by which workers load it with NumPy alone; elsewhere it runs in
this process.

How many scenarios a leaf has follows from the program, never from how many there are or who computes them: the largest
power of two for which memory of a call stays within ``LEAF_BYTES``, within bounds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from staticgrad.base import config, image
from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.compiler.machine.machine import least_seconds
from staticgrad.compiler.machine.target import named
from staticgrad.compiler.native.module import load_code
from staticgrad.compiler.program.slots import FeedSlot, FetchSlot, StateSlot
from staticgrad.runtime.export import program_file
from staticgrad.runtime.export.loaded import LoadedEntry, ProgramCode, ProgramInstance
from staticgrad.runtime.export.options import ExportOptions
from staticgrad.runtime.export.programs import ExportedPrograms, state_of

if TYPE_CHECKING:
    from staticgrad.compiler.program.program import Program
    from staticgrad.runtime.export.source import ExportSource
    from staticgrad.runtime.running.state import SessionState

ENTRY = "entry"  # as the module around a program calls its function
LEAF_BYTES = 1 << 20  # of the memory that a call of a leaf works in, about what a second cache holds
FIRST_ROWS = 64  # for which a program is compiled to see what it needs
MOST_ROWS = 1 << 16
MOST_BYTES = 1 << 26  # of the memory of a leaf of ``FIRST_ROWS``; one that needs more has fewer


def rows_of_leaf(program: Program) -> int:
    """The number of scenarios of a leaf, from the program for ``FIRST_ROWS``."""
    arrays = [slot.type for slot in program.interface.slots if isinstance(slot, FeedSlot | FetchSlot)]
    nbytes = program.arena_bytes + sum(t.nbytes for t in arrays)
    if nbytes > MOST_BYTES:
        return max(1, FIRST_ROWS >> (nbytes // MOST_BYTES).bit_length())
    wanted = FIRST_ROWS * LEAF_BYTES // max(nbytes, 1)
    return min(MOST_ROWS, max(FIRST_ROWS, 1 << max(wanted, 1).bit_length() - 1))


@frozen(eq=False)
class LeafProgram:
    """A compiled program, and the session's state that it begins with.

    Attributes:
        seconds: a rough lower bound of the time of a call.
    """

    code: ProgramCode
    draws: bool
    seconds: float
    rows: int

    def entry(self, store: SessionState) -> LoadedEntry:
        """Its function, with the variables as they are in the session now."""
        return LoadedEntry(ProgramInstance(self.code, state_of(store, self.code.layout)), ENTRY)

    @property
    def is_file(self) -> bool:
        """True if it can be sent to other processes."""
        return bool(self.code.file.data)


def leaf_program(source: ExportSource, program: Program, rows: int) -> LeafProgram:
    """The program of a leaf of ``rows`` scenarios, loaded.

    Raises:
        GraphError: it writes variables, calls Python or other processes, or reads gradients of tapes.
    """
    interface = program.interface
    written = next((slot for slot in interface.slots if isinstance(slot, StateSlot) and slot.written), None)
    if written is not None:
        raise GraphError(
            f"map: the program writes the variable {written.name!r}, and scenarios have no order: map what reads it"
        )
    options = ExportOptions("program", "speed", "slots", None, "data", 0)
    given = replace(source, program=lambda target, threads: program)
    made = ExportedPrograms("scenarios", {ENTRY: given}, source.store, named(program.target), options, {})
    code, described = made.code(), made.interface
    draws = described.state.draws
    seconds = least_seconds(interface.flops, interface.bytes)
    if isinstance(code, image.CodeImage):
        content = program_file.to_bytes(described, {program.target: code}, made.initial)
        loaded = ProgramCode(program_file.parse(content, "the program"), "the program")
    else:
        here = program_file.ProgramFile(b"", config.version(), (), described, (0, 0), ())
        loaded = ProgramCode(here, "the program", load_code(code))
    return LeafProgram(loaded, draws, seconds, rows)
