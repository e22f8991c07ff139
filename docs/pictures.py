"""The pictures of the documentation, drawn from the programs that the pages themselves run.

A picture is a function of the namespace that its page's blocks leave behind and of the path to write. Its name is the
file's: a page shows ``plan_training`` by ``![What it shows](../_made/plan_training.svg)``, and the HTML that a notebook
shows, or a program that runs in the page (``widget.py``), by a block ``{raw} html`` with
``:file: ../_made/notebook_graph.html``. What is a page of its own has the suffix ``page.html``, and is shown in a frame
by a block ``{raw} html`` with ``<iframe src="../_made/viewed_step.page.html">``; the site has it in a folder of the
same name.
"""

from __future__ import annotations

import html
import io
import itertools
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import widget

import staticgrad as sg
from staticgrad.base import phases
from staticgrad.base.progress import PATIENCE, Progress, Terminal

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "benchmarks"))

import chart  # noqa: E402  its folder is on the path now
import history  # noqa: E402

WHOLE = "page.html"  # the suffix of what is a page of its own

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


@picture("internals/way.md")
def way_of_the_net(page: Mapping[str, Any], path: Path) -> None:
    page["net"].memory.plot(path)


@picture("guides/viewer.md", WHOLE)
def viewed_step(page: Mapping[str, Any], path: Path) -> None:
    page["step"].view(path, page["profile"])


@picture("learn/train-here.md", "html")
def trained_here(page: Mapping[str, Any], path: Path) -> None:
    data = {"points": page["points"].tolist(), "labels": page["labels"].tolist(), "grid": page["GRID"]}
    path.write_text(widget.html("train", page["entries"], data), encoding="utf-8")


GREEKS = {
    "value": "value",
    "delta": "delta: value by price",
    "gamma": "gamma: delta by price",
    "vega": "vega: value by volatility",
    "theta": "theta: value by time",
    "rho": "rho: value by rate",
}


@picture("learn/greeks-here.md", "html")
def greeks_here(page: Mapping[str, Any], path: Path) -> None:
    data = {"spots": page["spots"].tolist(), "titles": GREEKS}
    path.write_text(widget.html("greeks", {"greeks": page["greeks"]}, data), encoding="utf-8")


def shown_in_notebook(name: str, shown: Callable[[Mapping[str, Any]], Any]) -> None:
    """Enter what a notebook shows of a value of the page about notebooks."""

    def draw(page: Mapping[str, Any], path: Path) -> None:
        path.write_text(shown(page)._repr_html_(), encoding="utf-8")

    draw.__name__ = f"notebook_{name}"
    picture("guides/notebooks.md", "html")(draw)


shown_in_notebook("graph", lambda page: page["g"])
shown_in_notebook("executable", lambda page: page["step"])
shown_in_notebook("memory", lambda page: page["step"].memory)
shown_in_notebook("cost", lambda page: page["step"].cost)
shown_in_notebook("profile", lambda page: page["profile"])


@picture("guides/notebooks.md", "html")
def notebook_progress(page: Mapping[str, Any], path: Path) -> None:
    """The line of a compilation, as it stands while somebody waits who thinks each phase long."""
    written, clock = io.StringIO(), itertools.count(PATIENCE)
    line = Progress(len(page["g"].nodes), Terminal(written), lambda: next(clock))
    with phases.told(line), mock.patch.dict(os.environ, STATICGRAD_CACHE="0"):
        sg.Session(page["g"]).compile([page["loss"], page["train"]], [page["x"], page["t"]])
    texts = written.getvalue().split("\r")
    path.write_text(f"<pre>{html.escape(texts[len(texts) // 2].strip())}</pre>\n", encoding="utf-8")


@picture("figures.md")
def figures_mean(page: Mapping[str, Any], path: Path) -> None:
    chart.draw_mean(history.load(), path)


@picture("figures.md")
def figures_workloads(page: Mapping[str, Any], path: Path) -> None:
    chart.draw_workloads(history.load(), path)


def plan_of_home(path: Path) -> None:
    """The picture of the README and of the site's first page: the plan of a training step of a small convolutional
    net, made for AVX2 on every machine."""
    import matplotlib

    with mock.patch.dict(os.environ, STATICGRAD_TARGET="avx2"), sg.Graph() as g:
        images, labels = sg.placeholder((32, 1, 28, 28), name="images"), sg.placeholder((32,), sg.int64, name="labels")
        net = sg.nn.Sequential(
            sg.nn.Conv2d(1, 8, 3, padding=1), sg.nn.ReLU(), sg.nn.MaxPool2d(2),
            sg.nn.Conv2d(8, 16, 3, padding=1), sg.nn.ReLU(), sg.nn.MaxPool2d(2),
            sg.nn.Flatten(), sg.nn.Linear(784, 64), sg.nn.ReLU(), sg.nn.Linear(64, 10),
        )  # fmt: skip
        loss = sg.nn.cross_entropy(net(images), labels)
        train = sg.optim.Adam(lr=1e-3).minimize(loss)
        step = sg.Session(g).compile([loss, train], [images, labels])
    same = mock.patch.dict(os.environ, SOURCE_DATE_EPOCH="0"), matplotlib.rc_context({"svg.hashsalt": "plan"})
    with same[0], same[1]:  # neither the date nor random names in the file
        step.memory.plot(path)


if __name__ == "__main__":  # the README shows what is committed
    plan_of_home(HERE / "_static" / "plan.svg")
