"""Looking at a compilation while it goes on: what the switches PRINT_AFTER, DUMP_DIR, VERIFY and DEBUG ask for.

``STATICGRAD_DEBUG=1`` tells one line a program, 2 one a stage with its time, 3 also the kernels, 4 also the graph after
each stage, 5 also the LLVM text. The lines, not the texts, are also there for whoever listens to the logger
``staticgrad.compile``.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable

from staticgrad.base import config, log
from staticgrad.compiler.program.program import Program
from staticgrad.compiler.regions.region import Region
from staticgrad.graph.text import print_nodes

_programs = itertools.count()
_LEVEL_OF = {"kernels": 3, "llvm": 5}  # graphs: 4


class Stages:
    """One compilation, stage by stage."""

    def __init__(self) -> None:
        self._directory = config.get("DUMP_DIR")
        self._wanted = config.names("PRINT_AFTER")
        self._debug = int(config.get("DEBUG"))
        self._verify = config.get("VERIFY") != "0"
        self._program = next(_programs)
        self._stage = itertools.count()
        self._begun = self._last = time.perf_counter()

    def region(self, name: str, region: Region) -> Region:
        """A stage made this region; it is verified and shown where that is asked for, and handed back."""
        self._tell(name, f"{len(region.graph.nodes)} ops")
        if self._verify:
            from staticgrad.compiler.regions.verify import verify

            verify(region, name)
        self.text(name, lambda: print_nodes(region.graph.nodes))
        return region

    def text(self, name: str, text: Callable[[], str]) -> None:
        """A stage's result as text, made only if it is to be shown."""
        shown = name in self._wanted or self._debug >= _LEVEL_OF.get(name, 4)
        if not shown and not self._directory:
            return
        content = text()
        if shown:
            log.tell("compile", log.DEBUG, f"after {name}:\n{content}", asked=True)
        if self._directory:
            os.makedirs(self._directory, exist_ok=True)
            path = os.path.join(self._directory, f"{self._program:04d}-{next(self._stage):02d}-{name}.txt")
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)

    def done(self, program: Program) -> Program:
        """The compilation is over."""
        self.text("llvm", lambda: program.llvm_text)
        self._tell("emit", f"{sum(map(len, program.modules))} characters of LLVM")
        if self._debug >= 1 or log.is_told("compile", log.INFO):
            seconds = time.perf_counter() - self._begun
            arena = f"arena {program.arena_bytes} bytes, at least {program.lower_bound_bytes}"
            line = f"program {self._program}: {len(program.costs)} steps, {arena}, {seconds:.3f} s"
            log.tell("compile", log.INFO, line, asked=self._debug >= 1)
        return program

    def _tell(self, name: str, what: str) -> None:
        now = time.perf_counter()
        line = f"  {name}: {what}, {(now - self._last) * 1e3:.1f} ms"
        log.tell("compile", log.DEBUG, line, asked=self._debug >= 2)
        self._last = now
