"""Executables for others than Python: what C functions and exports need of their programs.

Input: the programs of an executable. Output: a C function, or the executable as exports see it. Both are for the sizes
of the latest call, and of a program that is compiled once more, to keep nothing from call to call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from staticgrad.base import config
from staticgrad.base.errors import StaticGradError
from staticgrad.base.types import Shape, Symbol, symbols_of
from staticgrad.graph.graph import Tensor
from staticgrad.runtime.export.source import ExportSource
from staticgrad.runtime.running.binding import bind_sizes
from staticgrad.runtime.session.programs import Programs

if TYPE_CHECKING:
    from staticgrad.compiler.machine.target import Target
    from staticgrad.compiler.program.program import Program
    from staticgrad.compiler.regions.region import Region
    from staticgrad.runtime.callers.cfunction import CFunction
    from staticgrad.runtime.callers.cfunction_text import SignatureName

SOME_SIZE, MOST_SIZE = 2, 2**20  # of what is exported for all sizes: one, with which sizes are compared, and the bound


def c_function(programs: Programs, executable: object, signature: SignatureName, wrt: Tensor | None) -> CFunction:
    """The program as a C function, which keeps ``executable`` alive."""
    from staticgrad.runtime.callers.cfunction import CFunction, form_of

    types, fetched, options = programs.latest_types("cfunc"), programs.fetched, programs.options
    binary = programs.compiler.independent(fetched.wanted, types, options)
    feeds = list(types.items())
    form, results = form_of(signature, binary.interface, feeds, fetched.mentioned, wrt)
    return CFunction(executable, binary, programs.compiler.store, options.target, form, feeds, results)


def with_gradient(
    programs: Programs, signature: str, wrt: Tensor | None, caller: str
) -> tuple[list[Tensor | None], dict[Tensor, Shape]] | None:
    """A lone number and its gradient, and the shapes of what is fed, to be compiled where a signature wants both; None
    elsewhere.

    Raises:
        StaticGradError: the reference backend has no machine code.
    """
    from staticgrad.runtime.callers.cfunction import GRADIENTS

    if config.get("BACKEND") == "reference":
        raise StaticGradError("the reference backend compiles nothing: there is no function for C")
    fetched, feeds = programs.fetched, programs.feeds
    if signature not in GRADIENTS or len(fetched.leaves) != 1 or not fetched.tensors:
        return None
    from staticgrad.compiler.autodiff.reverse import gradients

    (value,), x = fetched.tensors, feeds[0] if wrt is None and feeds else wrt
    slopes = gradients(value, [x])
    return [value, *slopes], {feed: t.shape for feed, t in programs.latest_types(caller).items()}


def _open_region(programs: Programs) -> Region | None:
    """The region of a program for all sizes that were open when it was compiled; None where there were none.

    Raises:
        RangeError: a size has to be known.
    """
    feeds, shapes = programs.feeds, programs.latest_shapes
    given = {} if shapes is None else bind_sizes(feeds, shapes)
    open_ = [s for s in dict.fromkeys(s for x in feeds for s in symbols_of(x.shape)) if s not in programs.fixed]
    if not open_:
        return None
    bindings: dict[Symbol, int] = {**dict.fromkeys(open_, SOME_SIZE), **{s: given[s] for s in programs.fixed}}
    ranges = {s: (1, s.ends[-1] if s.ends else MOST_SIZE) if s in open_ else (n, n) for s, n in bindings.items()}
    return programs.compiler.open_region(programs.fetched.wanted, feeds, programs.options, bindings, ranges)


def export_source(
    programs: Programs,
    with_gradient: Callable[[str, Tensor | None], ExportSource],
    compile: Callable[[Sequence[Tensor], Sequence[Tensor]], ExportSource],
) -> ExportSource:
    """The executable as exports see it; the arguments are fields of the result."""
    fetched, compiler = programs.fetched, programs.compiler
    types, mentioned = functools.partial(programs.latest_types, "export"), fetched.mentioned

    def program(target: Target, threads: int) -> Program:
        options = replace(programs.options, target=target, workers=threads)
        return compiler.unloaded(fetched.wanted, types(), options)

    return ExportSource(
        feeds=programs.feeds,
        fetches=fetched.nest,
        fetched=mentioned,
        has_ops=len(mentioned) != len(fetched.leaves),
        store=compiler.store,
        types=types,
        program=program,
        with_gradient=with_gradient,
        compile=compile,
        region=lambda: compiler.region(fetched.wanted, types(), programs.options),
        open_region=lambda: _open_region(programs),
    )
