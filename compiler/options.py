"""Options: everything beside the region that a program depends on; part of the key under which it is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from staticgrad import config
from staticgrad.compiler.emit.target import Target, current_target
from staticgrad.frozen import frozen

if TYPE_CHECKING:
    from staticgrad.compiler.kernels.matrix import Blocking, Contraction


@frozen
class Options:
    """What a program is compiled for and how."""

    target: Target
    memory: str = "plan"
    disabled: frozenset[str] = frozenset()
    planning_seconds: float = 0.0
    memory_budget: int | float | None = None  # for the arena: bytes, or a part of what is needed without it
    timed: bool = False  # whether the program notes the time after each step
    workers: int = 1  # threads for which scratch memory is planned; how work is cut does not depend on it
    prepares: bool = False  # whether what follows from variables alone is kept from call to call
    stepwise: bool = False  # each step is a function of its own, to be run beside its reference
    blockings: tuple[tuple[Contraction, Blocking], ...] = ()  # of products that are faster with them, as measured

    @staticmethod
    def from_environment(
        *,
        planning_seconds: float = 0.0,
        memory_budget: int | float | None = None,
        workers: int = 1,
    ) -> Options:
        switches = config.get("MEMORY"), config.names("DISABLE")
        stepwise = config.get("VERIFY") == "2"
        return Options(current_target(), *switches, planning_seconds, memory_budget, workers=workers, stepwise=stepwise)
