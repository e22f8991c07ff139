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
        optimized_seconds: seconds in which a thread made optimised code beside the calls, so far.
        is_ready: whether the next call of each program runs optimised code.
    """

    phases: Mapping[str, float]
    compiled: int
    found_in_memory: int
    found_on_disk: int
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
        programs = (
            f"programs: {self.compiled} compiled, {self.found_in_memory} found in memory,"
            f" {self.found_on_disk} found on disk"
        )
        return f"{programs}\n{table(('phase', 'seconds'), rows, right=(1,))}"
