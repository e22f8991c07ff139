"""The options of a program: all that it depends on in addition to its region, as one value; part of the key under which
it is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from staticgrad.base import config
from staticgrad.base.frozen import frozen
from staticgrad.base.types import Precision
from staticgrad.compiler.machine.target import Target, current_target

if TYPE_CHECKING:
    from staticgrad.compiler.kernels.matrix import Blocking, Contraction


@frozen
class CompileOptions:
    """The target and the options for which a program is compiled. ``replace`` makes other options of some."""

    target: Target
    memory: str = "plan"
    disabled: frozenset[str] = frozenset()
    planning_seconds: float = 0.0  # for which a better placement of the buffers is searched
    memory_budget: int | float | None = None  # for the arena: bytes, or a part of what is needed without it
    autotune: bool = False  # whether blockings of products are measured first; what was found replaces this
    check_numerics: bool = False  # whether every floating result is checked for NaN and infinity
    timed: bool = False  # whether the program notes the time after each step
    workers: int = 1  # threads for which scratch memory is planned; how work is cut does not depend on it
    prepares: bool = False  # whether what follows from variables alone is kept from call to call
    stepwise: bool = False  # each step is a function of its own, to be compared with its reference
    blockings: tuple[tuple[Contraction, Blocking], ...] = ()  # of products that are faster with them, as measured
    sizes: Literal["ranges", "exact"] = "ranges"  # what sizes that feeds bind are compiled for
    precision: Precision = "highest"  # of products of float32, which plans may give up for speed
    tiers: bool = False  # whether quick code may run until the optimised code is made; programs are the same

    @staticmethod
    def from_environment() -> CompileOptions:
        """The options that the switches ask for, for the target of this machine."""
        stepwise = config.get("VERIFY") == "2"
        return CompileOptions(current_target(), config.get("MEMORY"), config.names("DISABLE"), stepwise=stepwise)
