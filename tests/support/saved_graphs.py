"""The graphs of the fixture files in ``data/graphs``, and what writes such files once for a version of their format.

    python tests/support/saved_graphs.py FOLDER

writes ``versionN.sgt`` with the file beside it, ``versionN.sgb`` and ``versionN.json`` with the figures that sessions
compute. Files of a version that was released are never written again: later versions have to read them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import staticgrad as sg
from staticgrad.graph.graph import Graph
from staticgrad.runtime.files import graphfile

RUNS = 3  # of each entry
OPEN = 4  # the number in the place of an open size


def declared() -> tuple[Graph, dict[str, Any]]:
    """A small classifier with Adam over an open number of examples, a recurrence in a scan, and their entries."""
    draw = np.random.default_rng(0)
    with Graph() as graph:
        n = sg.dim("n", max=64)
        x, t = sg.placeholder((n, 5), name="x"), sg.placeholder((n,), sg.int64, name="t")
        first = sg.Variable(draw.normal(size=(5, 70)).astype(np.float32), name="first")
        second = sg.Variable(sg.init.uniform(-0.1, 0.1), shape=(70, 3), name="second")
        logits = sg.nn.relu(x @ first + np.float32(0.25)) @ second
        loss = sg.nn.cross_entropy(logits, t)
        train = sg.optim.Adam(lr=1e-2).minimize(loss)
        rows = sg.placeholder((None, 3), name="rows")
        mixed = draw.normal(size=(3, 100)).astype(np.float32)
        last, sums = sg.scan(lambda h, row: (sg.tanh(h * 0.5 + row @ mixed), sg.sum(h)), sg.zeros((100,)), rows)
        noise = sg.random.normal((2,))
    return graph, {
        "train_step": ({"loss": loss, "train": train}, [x, t]),
        "predict": (logits, {x: (2, 5)}),
        "recurrence": ((last, [sums]), [rows]),
        "noise": (noise, []),
    }


def figures(graph: Graph, path: Path) -> dict[str, Any]:
    """What the entries of a graph give in a few runs of a session with the state of a file."""
    with sg.Session(graph, num_threads=1) as sess:
        sess.restore(path)
        found: dict[str, Any] = {}
        for name, (fetches, feeds) in graph.entries.items():
            executable = sess.compile(fetches, feeds)
            draw = np.random.default_rng(1)
            runs = []
            for _ in range(RUNS):
                arrays = []
                for x, shape in feeds.items():
                    sizes = tuple(size if isinstance(size, int) else OPEN for size in shape)
                    value = draw.integers(0, 3, sizes) if x.dtype == sg.int64 else draw.normal(size=sizes)
                    arrays.append(value.astype(x.dtype))
                runs.append([y.tolist() for y in sg.nest.flatten(executable(*arrays)) if y is not None])
            found[name] = runs
        found["state"] = {name: sess.get(x).tolist() for name, x in graph.variables.items() if x.size < 10}
    return found


def write(folder: Path) -> None:
    """Write the files of the version that the package writes now."""
    graph, entries = declared()
    base = folder / f"version{graphfile.VERSION}"
    with sg.Session(graph, seed=3, num_threads=1) as sess:
        fetches, feeds = entries["train_step"]
        step = sess.compile(fetches, feeds)
        for seed in range(2):
            draw = np.random.default_rng(seed)
            step(draw.normal(size=(6, 5)).astype(np.float32), draw.integers(0, 3, 6))
        for form in (".sgt", ".sgb"):
            sg.save_graph(base.with_suffix(form), graph, entries=entries, session=sess)
    path = base.with_suffix(".sgb")
    known = figures(sg.load_graph(path), path)
    base.with_suffix(".json").write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
