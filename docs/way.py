"""A program's way: the texts of the page ``internals/way.md``, made by compiling the programs that it declares.

A block ``{way} cut`` of that page stands for what the stage ``cut`` makes of each program. The stages are those that
the docstring of ``compiler/pipeline.py`` lists; while a program is compiled, the functions there note what they make.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pages

import staticgrad as sg
from staticgrad.base.tables import table
from staticgrad.compiler import pipeline
from staticgrad.compiler.describe import step_text
from staticgrad.compiler.passes import PASSES
from staticgrad.compiler.regions.region import Region
from staticgrad.compiler.stages import Stages
from staticgrad.compiler.steps import recompute
from staticgrad.compiler.tapes.plan import plan_tape
from staticgrad.graph.text import print_nodes
from staticgrad.runtime.session.executable import Executable

PAGE = "internals/way"
PROGRAMS = {  # executables that the page compiles, which fetch a loss first
    "regression": "A loss with its gradient",
    "pendulum": "A loop",
    "net": "A convolutional net with an update",
}
LINES = 40  # of a text or a function that are shown; the others are counted
BUDGET = 0.9  # of a program's arena, where buffers are computed again
BLOCK = re.compile(r"^```\{way\} (.+)\n```$", re.MULTILINE)


@dataclass(frozen=True)
class Stage:
    """A row of the pipeline's docstring: what a stage makes of what, and its module or folder in ``compiler/``."""

    name: str
    what: str
    place: str


def stages() -> list[Stage]:
    """The stages of the pipeline, in order."""
    rows = re.findall(r"^    (?=\S)(.{12}) (.*?) +\(([\w./]+)[^)]*\)$", pipeline.__doc__ or "", re.MULTILINE)
    return [Stage(name.strip(), re.sub(r" +-> ", " → ", what), place) for name, what, place in rows]


def levels() -> list[str]:
    """The levels of the page: what comes before the pipeline, its stages, and what LLVM makes of its text."""
    return ["graph", "tape", *(stage.name for stage in stages()), "machine code"]


# -- what the stages of a compilation make ----------------------------------------------------------------------------

# The functions of the pipeline that make steps or change them: the module in which they are looked up, their name, and
# the steps among the first argument and the result.
STEPS: dict[str, tuple[ModuleType, str, Callable[[Any, Any], Any]]] = {
    "lower": (pipeline, "lower", lambda given, made: made.steps),
    "inline": (pipeline, "inline", lambda given, made: made),
    "split": (pipeline, "split_reductions", lambda given, made: made),
    "prepare": (pipeline, "prepare", lambda given, made: made[0]),
    "plan kernels": (pipeline, "plan_kernels", lambda given, made: given),
    "schedule": (pipeline, "schedule", lambda given, made: made),
    "scalarize": (pipeline, "scalarize", lambda given, made: made),
    "running": (pipeline, "join_running", lambda given, made: made),
    "recompute": (recompute, "fit", lambda given, made: made),
}


class Noted:
    """What each stage of the compilation in a ``with`` block made: steps, a paragraph each, and regions.

    Bodies of loops pass the stages while ``lower`` runs: they are parts of the steps that it makes.
    """

    def __init__(self) -> None:
        self.steps: dict[str, list[str]] = {stage: [] for stage in STEPS}
        self.regions: dict[str, Region] = {}
        self._lowering = 0
        self._patches = ExitStack()

    def __enter__(self) -> Noted:
        for stage, (module, name, _) in STEPS.items():
            noting = mock.patch.object(module, name, self._noting(stage, getattr(module, name)))
            self._patches.enter_context(noting)
        self._patches.enter_context(mock.patch.object(Stages, "region", self._region))
        self._patches.enter_context(mock.patch.dict(os.environ, STATICGRAD_CACHE="0"))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def _noting(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def noting(*args: Any, **named: Any) -> Any:
            self._lowering += stage == "lower"
            try:
                made = function(*args, **named)
            finally:
                self._lowering -= stage == "lower"
            if not self._lowering:
                *_, steps_of = STEPS[stage]
                found = self.steps[stage]  # the steps that are prepared are planned and ordered before the others
                found += [step_text(number, step) for number, step in enumerate(steps_of(args[0], made), len(found))]
            return made

        return noting

    def _region(self, name: str, region: Region) -> Region:
        self.regions[name] = region
        return region


# -- the texts of a program -------------------------------------------------------------------------------------------


def texts(program: Executable) -> dict[str, str]:
    """The text of each level of a program, by the level's name."""
    fetches, feeds = program.fetches, list(program.feeds)
    loss = fetches[0]
    with Noted() as noted:
        made = sg.Session(loss.op.graph).compile(fetches, feeds)
    found = {"graph": str(loss.op.graph), "tape": tape_text(loss, feeds)}
    found["cut"] = region_text(noted.regions["cut"])
    counts = (f"{len(noted.regions[p.name].graph.nodes)} after {p.name}" for p in PASSES)
    head = f"# {len(noted.regions['cut'].graph.nodes)} ops after cut, {', '.join(counts)}"
    found["passes"] = f"{head}\n{region_text(noted.regions[PASSES[-1].name])}"
    found["materialize"] = region_text(noted.regions["materialize"])
    with Noted() as again:
        try:
            sg.Session(loss.op.graph).compile(fetches, feeds, memory_budget=BUDGET)
        except sg.StaticGradError as error:  # it says what the least is
            again.steps["recompute"] = [str(error)]
    found |= steps_texts({**noted.steps, "recompute": again.steps["recompute"]})
    heads = [line for line in made.text("kernels").splitlines() if not line.startswith(" ")]
    found["place"] = "\n".join([*heads, "", str(made.memory)])
    found = {level: shortened(text) for level, text in found.items()}
    llvm, assembly = made.text("llvm"), made.text("asm")
    functions = ("main", nest_of(llvm))
    found["emit"] = "\n\n".join(shortened(defined(llvm, name)) for name in functions)
    found["machine code"] = "\n\n".join(shortened(labelled(assembly, name)) for name in functions)
    return found


def region_text(region: Region) -> str:
    return print_nodes(region.graph.nodes)


def tape_text(loss: sg.Tensor, feeds: Sequence[sg.Tensor]) -> str:
    """The residuals that a tape of the loss keeps, and the region of the backward that reads them."""
    plan = plan_tape(loss.op.graph, [loss], {x: x.type for x in feeds})
    rows = [(r.name, str(r.type), str(r.nbytes), r.reason) for r in plan.residuals]
    kept = table(("residual", "type", "bytes", "why"), rows, right=(2,))
    return f"{kept}\n\n{region_text(plan.backward([loss], [False]).region)}"


def steps_texts(made: Mapping[str, list[str]]) -> dict[str, str]:
    """The text of each stage's steps: a line each, and below it what no stage before has shown of the same step."""
    found, shown = {}, dict[str, str]()
    before: tuple[str, list[str]] = ("", [])
    for stage, paragraphs in made.items():
        parts = []
        for paragraph in paragraphs:
            head, _, body = paragraph.partition("\n")
            step = head.partition(": ")[2]
            parts.append("\n".join(filter(None, [head, body.removeprefix(shown.get(step, "")).strip("\n")])))
            shown[step] = body
        found[stage] = f"as after {before[0]}" if paragraphs == before[1] else "\n".join(parts) or "none"
        if stage != "prepare":  # which makes some of them alone
            before = stage, paragraphs
    return found


def defined(llvm: str, name: str) -> str:
    """The definition of a function in LLVM text."""
    found = re.search(rf"^define [^\n]*@{re.escape(name)}\(.*?^}}$", llvm, re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return found[0]


def nest_of(llvm: str) -> str:
    """The first function of a nest that has a loop; without one the longest."""
    names = re.findall(r"^define [^\n]*@(nest[\w.]*)\(", llvm, re.MULTILINE)
    looping = [name for name in names if re.search(r"^loop\d+:", defined(llvm, name), re.MULTILINE)]
    return looping[0] if looping else max(names, key=lambda name: len(defined(llvm, name)))


def labelled(assembly: str, name: str) -> str:
    """The labels and instructions of a function in assembly, without directives."""
    found = re.search(rf"^{re.escape(name)}:.*?(?=^\.Lfunc_end)", assembly, re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return "\n".join(line.expandtabs(8) for line in found[0].splitlines() if not re.match(r"\s+\.", line))


def shortened(text: str) -> str:
    """The first ``LINES`` lines of a text, and how many more it has."""
    lines = text.splitlines()
    left = len(lines) - LINES
    return text if left <= 0 else "\n".join([*lines[:LINES], f"… {left} more line{'s' * (left > 1)}"])


# -- the page ---------------------------------------------------------------------------------------------------------


def expanded(text: str, page: Path) -> str:
    """A page's text with those of its programs in the place of its blocks."""
    namespace = pages.run(page)
    found = {title: texts(namespace[name]) for name, title in PROGRAMS.items()}
    rows = {stage.name: f"*{stage.what}*, in `compiler/{stage.place}`\n\n" for stage in stages()}

    def block(match: re.Match[str]) -> str:
        level = match[1]
        return rows.get(level, "") + "\n".join(shown(title, made[level], page) for title, made in found.items())

    return BLOCK.sub(block, text)


def shown(title: str, text: str, page: Path) -> str:
    """A text below the title of its program. Nodes that passes make have the line that called the compiler, which here
    is one of this module; lines of the page are known by its name."""
    text = re.sub(rf"  # {re.escape(__file__)}:.*", "", text).replace(str(page), page.name)
    if "\n" not in text:
        return f"*{title}*: {text}\n"
    return f"````{{code-block}} text\n:caption: {title}\n\n{text}\n````\n"
