"""The options of an export, checked, as one value."""

from __future__ import annotations

from typing import Literal, get_args

from staticgrad.base.errors import StaticGradError
from staticgrad.base.frozen import frozen
from staticgrad.graph.graph import Tensor

Format = Literal["object", "shared", "program", "llvm"]
Optimize = Literal["speed", "size"]
InitialState = Literal["data", "file"]
FORMATS: tuple[Format, ...] = get_args(Format)  # the first is the default
OPTIMIZE: tuple[Optimize, ...] = get_args(Optimize)
CASADI = "casadi"  # a signature of several functions
WITH_X = ("logp", "nlopt", "vector", "scalar", "scalars")  # signatures one of whose feeds is x
MOST_THREADS = 1024


@frozen
class ExportOptions:
    """The options of an export, as ``sg.export`` has them.

    Raises:
        StaticGradError: there is none of such a value, or not with the others.
    """

    format: Format
    optimize: Optimize
    signature: str
    wrt: Tensor | None
    initial_state: InitialState
    threads: int

    def __post_init__(self) -> None:
        for what, given, known in (
            ("format", self.format, FORMATS),
            ("optimize", self.optimize, OPTIMIZE),
            ("initial_state", self.initial_state, get_args(InitialState)),
        ):
            if given not in known:
                raise StaticGradError(
                    f"export: {what}: expected one of {', '.join(map(repr, known))}, actual {given!r}"
                )
        if self.is_casadi and self.format not in ("shared", "object"):
            raise StaticGradError(f"export: CasADi loads a format of 'shared' or 'object', actual {self.format!r}")
        if self.format == "program" and not self.has_state:
            raise StaticGradError(f"export: a 'program' has functions of 'slots', actual signature {self.signature!r}")
        if not isinstance(self.threads, int) or not 0 <= self.threads <= MOST_THREADS:
            raise StaticGradError(f"export: threads: expected from 0 to {MOST_THREADS}, actual {self.threads!r}")
        if self.threads and (not self.has_state or self.format == "program"):
            raise StaticGradError("export: threads: only functions of 'slots' are given threads, and no 'program' is")
        if self.wrt is not None and self.signature not in WITH_X:
            raise StaticGradError(f"export: wrt: functions of {self.signature!r} have no x")

    @property
    def is_casadi(self) -> bool:
        return self.signature == CASADI

    @property
    def has_state(self) -> bool:
        """True if functions are given their memory and a state."""
        return self.signature == "slots"
