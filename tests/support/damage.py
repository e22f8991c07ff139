"""Damage to the files of graphs, drawn from a seed: bytes, chunks, lines, tokens and numbers that are changed.

What changes the text of a graph can be put back into a file whose digest is right, so that not only the digest finds
it: see ``DAMAGED``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import staticgrad as sg
from staticgrad.graph.graph import Graph
from staticgrad.runtime.files import graphfile, tensorfile

TOKEN = re.compile(r"%[\w./~-]+|\w+|'[^']*'|[^\w\s]")
NUMBERS = ("0", "-1", "2", "63", "1e9", "1e999", "4294967296", "9223372036854775807", "9" * 30, "nan", "True", "None")


def small_graphs() -> Iterator[tuple[str, Graph]]:
    """Graphs with all that a file may hold, each of few lines."""
    rng = np.random.default_rng(0)
    with Graph() as g:
        n = sg.dim("n", max=64)
        x = sg.placeholder((n, 3), name="x", requires_grad=True)
        w = sg.Variable(rng.normal(size=(3, 9)).astype(np.float32), name="w")
        y = sg.tanh(x @ w) * rng.normal(size=9).astype(np.float32)
        both = sg.concat([sg.reshape(y, (n * 9,)), sg.zeros((n * 3,))], axis=0)
        parts = sg.split(sg.nn.softmax(y), 3, axis=1)
        g.entries["net"] = sg.graph.GraphEntry({"y": [y, both], "parts": tuple(parts)}, {x: (4, 3)})
    yield "a net", g
    with Graph() as g:
        x = sg.placeholder((4, 3), name="x")
        last, ys = sg.scan(lambda carry, row: (carry * 0.5 + row, sg.sum(carry)), sg.zeros((3,)), x)
        sg.cond(sg.sum(ys) > 0, lambda: sg.exp(last), lambda: last * 2.0 + sg.random.uniform((3,)))
    yield "a loop", g
    with Graph() as g:
        x = sg.placeholder((2, 1, 6, 6), name="images")
        w = sg.Variable(sg.init.uniform(-1.0, 1.0), shape=(2, 1, 3, 3), name="filters")
        y = sg.nn.max_pool2d(sg.nn.conv2d(x, w, padding=1), 2)
        z = sg.einsum("ncij,ncjk->nik", y, y) + sg.ones((2, 1, 1)) * 3
        sg.assign(w, w + sg.sum(sg.pad(z, ((0, 0), (1, 1), (0, 2)))))
        sg.print(sg.cumulative_sum(sg.sort(z, axis=-1), axis=1)[:, 1:, ::2], "z")
        sg.constant(rng.integers(0, 2, 40).astype(bool))
        sg.checkpoint(lambda a: sg.exp(a), sg.linalg.cholesky(sg.eye(3)))
    yield "ops with attributes", g


# -- changes of bytes -------------------------------------------------------------------------------------------------


def change_bytes(draw: random.Random, content: bytes) -> bytes:
    """A file with a bit flipped, bytes put in or taken out, its end cut off, or chunks swapped or repeated."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        at = draw.randrange(len(data) + 1)
        length = draw.choice((1, 2, 8, 64, 512))
        match draw.randrange(6):
            case 0 if at < len(data):
                data[at] ^= 1 << draw.randrange(8)
            case 1:
                data[at:at] = draw.randbytes(length)
            case 2:
                del data[at : at + length]
            case 3:
                del data[at:]
            case 4:
                other = draw.randrange(len(data) + 1)
                one, two = data[at : at + length], data[other : other + length]
                data[at : at + length], data[other : other + length] = two, one
            case _:
                data[at:at] = data[at : at + length]
    return bytes(data)


# -- changes of a text ------------------------------------------------------------------------------------------------


def change_text(draw: random.Random, text: str) -> str:
    """A text with tokens, numbers or lines changed."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        match draw.randrange(6):
            case 0:
                text = _with_tokens(draw, text, lambda tokens: draw.choice(tokens)[0])
            case 1:
                text = _with_tokens(draw, text, lambda tokens: draw.choice(NUMBERS), r"\d+")
            case 2:
                text = _with_tokens(draw, text, lambda tokens: "")
            case 3:
                lines = text.split("\n")
                i, j = draw.randrange(len(lines)), draw.randrange(len(lines))
                lines[i], lines[j] = lines[j], lines[i]
                text = "\n".join(lines)
            case 4:
                lines = text.split("\n")
                lines.insert(draw.randrange(len(lines)), draw.choice(lines))
                text = "\n".join(lines)
            case _:
                text = change_bytes(draw, text.encode()).decode(errors="replace")
    return text


def _with_tokens(draw: random.Random, text: str, other: Callable[[list[re.Match[str]]], str], kind: str = "") -> str:
    """The text with another token in the place of one; of those that are like ``kind``, where that is given."""
    tokens = list(TOKEN.finditer(text))
    places = [found for found in tokens if re.fullmatch(kind, found[0])] if kind else tokens
    if not places:
        return text
    place = draw.choice(places)
    return text[: place.start()] + other(tokens) + text[place.end() :]


# -- damaged files ----------------------------------------------------------------------------------------------------


class Originals:
    """Graphs as they are written, from which damaged files are drawn into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: list[str] = []
        self.contents: dict[str, bytes] = {}
        self.files: dict[str, graphfile.GraphFile] = {}
        for number, (_, graph) in enumerate(small_graphs()):
            for name in (f"{number}.sgt", f"{number}.sgb"):
                # Both with arrays beside the text.
                sg.save_graph(folder / name, graph, session=sg.Session(graph) if number == 0 else None)
                self.names.append(name)
        for path in folder.iterdir():
            self.contents[path.name] = path.read_bytes()
        for name in self.names:
            self.files[name] = graphfile.read(folder / name)

    def damaged(self, draw: random.Random) -> Path:
        """The path of the next damaged file."""
        name = draw.choice(self.names)
        path = self.folder / f"damaged{name}"
        path.unlink(missing_ok=True)  # some systems write a file to the disk that is written over
        way = draw.randrange(4)
        if way == 0:
            path.write_bytes(change_bytes(draw, self.contents[name]))
            return path
        file = self.files[name]
        text = change_text(draw, file.text.lstrip("\n"))
        if way == 1 or name.endswith("t"):
            path.write_bytes(b"staticgrad graph 1\n" + text.encode(errors="replace"))
            return path
        values = {f"array/{name}": value for name, value in file.arrays.items()}
        notes = {"format": "staticgrad.graph.1", "graph": text.encode(errors="replace").decode()}
        if way == 3:  # other arrays, or damage to the header of a file whose digest was right
            values = {change_text(draw, name) if draw.random() < 0.2 else name: value[: draw.randrange(3) or None]
                      for name, value in values.items()}  # fmt: skip
        content = tensorfile.to_bytes(values, notes | {"digest": tensorfile.digest_of(values, notes)})
        path.write_bytes(change_bytes(draw, content) if draw.random() < 0.1 else content)
        return path
