"""Set-up: what was done before an executable could be called, and how long it took.

Input: what ``Programs`` notes while programs are chosen, and their binaries. Output: ``exe.setup``.
"""

from __future__ import annotations

from collections.abc import Mapping

from staticgrad.base.frozen import frozen
from staticgrad.base.tables import table


@frozen
class SetupReport:
    """The set-up of an executable, of all its programs together; ``str()`` is a table.

    Attributes:
        phases: the seconds of each phase of compilations, in the order in which phases first ended.
        compiled: the number of programs that were compiled.
        found_in_memory: the number of those that the session had already.
        found_on_disk: the number of those that an earlier process had kept.
        kernels_compiled: the number of functions of machine code that were made, of all that programs are made of.
        kernels_found_in_memory: the number of those that another program of this process has.
        kernels_found_on_disk: the number of those that an earlier process had kept.
        templates: the number of pieces that repeat in a graph and were compiled once, as loops.
        optimized_seconds: seconds in which a thread made optimised code beside the calls, so far.
        is_ready: whether the next call of each program runs optimised code.
    """

    phases: Mapping[str, float]
    compiled: int
    found_in_memory: int
    found_on_disk: int
    kernels_compiled: int
    kernels_found_in_memory: int
    kernels_found_on_disk: int
    templates: int
    optimized_seconds: float
    is_ready: bool

    @property
    def seconds(self) -> float:
        """The seconds that calls waited for."""
        return sum(self.phases.values())

    def __str__(self) -> str:
        rows = [(name, f"{seconds:.3f}") for name, seconds in self.phases.items()]
        rows += [("all", f"{self.seconds:.3f}")]
        if self.optimized_seconds or not self.is_ready:
            state = "" if self.is_ready else ", not ready yet"
            rows.append((f"optimised code, beside calls{state}", f"{self.optimized_seconds:.3f}"))
        lines = [
            _found("programs", self.compiled, self.found_in_memory, self.found_on_disk),
            _found("kernels", self.kernels_compiled, self.kernels_found_in_memory, self.kernels_found_on_disk),
            *([f"templates: {self.templates}"] if self.templates else []),
            table(("phase", "seconds"), rows, right=(1,)),
        ]
        return "\n".join(lines)


def _found(what: str, compiled: int, in_memory: int, on_disk: int) -> str:
    return f"{what}: {compiled} compiled, {in_memory} found in memory, {on_disk} found on disk"
