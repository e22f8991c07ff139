"""The pictures of the documentation, drawn from the programs that the pages themselves run.

A picture is a function of the namespace that its page's blocks leave behind and of the path to write. Its name is the
file's: a page shows ``plan_training`` by ``![What it shows](../_made/plan_training.svg)``, and the HTML that a notebook
shows by a block ``{raw} html`` with ``:file: ../_made/notebook_graph.html``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import staticgrad as sg

HERE = Path(__file__).resolve().parent

Draw = Callable[[Mapping[str, Any], Path], None]


@dataclass(frozen=True)
class Picture:
    """A picture of a page, which is named by its path below ``docs/``."""

    name: str
    page: str
    draw: Draw


PICTURES: list[Picture] = []


def picture(page: str, suffix: str = "svg") -> Callable[[Draw], Draw]:
    """Enter a function as a picture of this page, in a file with this suffix."""

    def enter(draw: Draw) -> Draw:
        PICTURES.append(Picture(f"{draw.__name__}.{suffix}", page, draw))
        return draw

    return enter


def draw(page: Path, namespace: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the pictures of a page into a folder, from what its blocks have left behind."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for one in PICTURES:
        if HERE / one.page == page:
            one.draw(namespace, folder / one.name)
            drawn.append(folder / one.name)
    return drawn


@picture("guides/which-call.md")
def plan_of_a_training_step(page: Mapping[str, Any], path: Path) -> None:
    page["step"].memory.plot(path)


@picture("guides/memory.md")
def plan_training(page: Mapping[str, Any], path: Path) -> None:
    page["step"].memory.plot(path)


@picture("guides/memory.md")
def plan_evaluation(page: Mapping[str, Any], path: Path) -> None:
    page["evaluate"].memory.plot(path)


@picture("guides/memory.md")
def tape_two_losses(page: Mapping[str, Any], path: Path) -> None:
    first, second = page["first"], page["second"]
    with sg.Session(page["h"]) as sess:
        feeds = {page["a"]: np.ones((256, 64), np.float32)}
        tape = sess.forward([first, second], feeds, backward_order=[first, second])
        tape.backward(first)
        tape.memory.plot(path)


@picture("guides/notebooks.md", "html")
def notebook_graph(page: Mapping[str, Any], path: Path) -> None:
    path.write_text(page["g"]._repr_html_(), encoding="utf-8")


@picture("guides/notebooks.md", "html")
def notebook_executable(page: Mapping[str, Any], path: Path) -> None:
    path.write_text(page["step"]._repr_html_(), encoding="utf-8")
