"""Export the training of a tiny net for a Cortex-M4: which of two rings does a point lie on?

    python examples/cortex-m/rings.py [FOLDER] [--target TARGET]

Goes out, into the folder (by default ``build``): the object ``rings.o``, its header ``rings.h``, and ``points.h``, the
points to learn from.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import staticgrad as sg

POINTS, HIDDEN, RINGS = 32, 8, 2


class Net:
    """2 numbers, 8 hidden, 2 classes: a training step for all points, a prediction for one."""

    def __init__(self) -> None:
        with sg.Graph() as self.graph:
            net = sg.nn.Sequential(sg.nn.Linear(2, HIDDEN), sg.nn.Tanh(), sg.nn.Linear(HIDDEN, RINGS))
            self.points = sg.placeholder((POINTS, 2), name="points")
            self.rings = sg.placeholder((POINTS,), sg.int32, name="rings")
            self.loss = sg.nn.cross_entropy(net(self.points), self.rings)
            self.train = sg.optim.Adam(lr=0.05).minimize(self.loss)
            self.point = sg.placeholder((1, 2), name="point")
            self.ring = sg.astype(sg.argmax(net(self.point), 1), sg.int32)

    def executables(self) -> dict[str, sg.Executable]:
        """Both programs, by the names of their C functions."""
        session = sg.Session(self.graph, seed=0)
        return {
            "train_step": session.compile({"loss": self.loss, "train": self.train}, [self.points, self.rings]),
            "predict": session.compile(self.ring, self.point),
        }


def data() -> tuple[np.ndarray, np.ndarray]:
    """Points (n, 2) float32 near circles of radius 1 and 2, and the ring of each, (n,) int32."""
    rng = np.random.default_rng(0)
    rings = np.arange(POINTS, dtype=np.int32) % RINGS
    angles, radii = rng.uniform(0, 2 * np.pi, POINTS), 1 + rings + rng.normal(0, 0.1, POINTS)
    return (radii * np.array([np.cos(angles), np.sin(angles)])).T.astype(np.float32), rings


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=Path("build"), type=Path)
    parser.add_argument("--target", default="cortex-m4", help="cortex-m4 (the default), cortex-m4-soft, cortex-m7, ...")
    chosen = parser.parse_args(arguments)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    net = Net().executables()
    print(sg.export(chosen.folder / "rings.o", net, target=chosen.target, optimize="size"))
    points, rings = data()
    (chosen.folder / "points.h").write_text(
        f"#include <stdint.h>\nenum {{ POINTS = {POINTS} }};\n"
        f"static const float points[POINTS][2] = {{{','.join(f'{{{x:.9e}f,{y:.9e}f}}' for x, y in points)}}};\n"
        f"static const int32_t rings[POINTS] = {{{','.join(map(str, rings))}}};\n"
    )


if __name__ == "__main__":
    main()
