"""Export the training of a net on handwritten digits: two C functions, which train.c calls.

    python examples/c/export.py [FOLDER] [--target TARGET] [--optimize speed|size]

Goes out, into the folder (by default ``build``): the object ``net.o``, its header ``net.h``, the same interface for
programs as ``net.json``, and the images: C arrays in ``digits.h``, plain bytes in ``pixels.bin`` and so on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import staticgrad as sg
from staticgrad.tools.demo import digits

BATCH, PIXELS, HIDDEN, CLASSES = 32, 64, 32, 10
WHITE = 16


class Net:
    """Pixels, labels and what becomes of them: a training step for batches, a prediction for one image."""

    def __init__(self) -> None:
        with sg.Graph() as self.graph:
            layers = [sg.nn.Linear(PIXELS, HIDDEN), sg.nn.ReLU(), sg.nn.Linear(HIDDEN, HIDDEN), sg.nn.ReLU(),
                      sg.nn.Linear(HIDDEN, CLASSES)]  # fmt: skip
            net = sg.nn.Sequential(*layers)
            self.pixels = sg.placeholder((BATCH, PIXELS), sg.uint8, name="pixels")  # from 0 to 16, as they were scanned
            self.labels = sg.placeholder((BATCH,), sg.uint8, name="labels")
            self.loss = sg.nn.cross_entropy(net(scaled(self.pixels)), sg.astype(self.labels, sg.int64))
            self.train = sg.optim.SGD(lr=0.05, momentum=0.9).minimize(self.loss)
            self.image = sg.placeholder((1, PIXELS), sg.uint8, name="image")
            self.digit = sg.argmax(net(scaled(self.image)), 1)

    def executables(self) -> dict[str, sg.Executable]:
        """Both programs, by the names of their C functions."""
        session = sg.Session(self.graph, seed=0)
        return {
            "train_step": session.compile({"loss": self.loss, "train": self.train}, [self.pixels, self.labels]),
            "predict": session.compile({"digit": self.digit}, self.image),
        }


def scaled(pixels: sg.Tensor) -> sg.Tensor:
    return sg.astype(pixels, sg.float32) / WHITE


def data() -> dict[str, np.ndarray]:
    """Images to train on and to test with, and their labels, as bytes."""
    found = digits.load()
    return {
        name: np.rint(array * scale).astype(np.uint8).reshape(len(array), -1)
        for name, array, scale in (
            ("pixels", found.images, WHITE), ("labels", found.labels, 1),
            ("test_pixels", found.test_images, WHITE), ("test_labels", found.test_labels, 1),
        )
    }  # fmt: skip


def c_arrays(arrays: dict[str, np.ndarray]) -> str:
    """The arrays as the text of a C header."""
    lines = [f"enum {{ BATCH = {BATCH}, IMAGES = {len(arrays['labels'])}, TESTS = {len(arrays['test_labels'])} }};"]
    for name, array in arrays.items():
        rows, columns = array.shape
        lines.append(f"static const unsigned char {name}[{rows}]{f'[{columns}]' if columns > 1 else ''} = {{")
        lines += [(f"{{{','.join(map(str, row))}}}," if columns > 1 else f"{row[0]},") for row in array]
        lines.append("};")
    return "\n".join([*lines, ""])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=Path("build"), type=Path)
    parser.add_argument("--target", help="the processor, by default this one: neon, riscv64, cortex-m4, wasm32, ...")
    parser.add_argument("--optimize", choices=("speed", "size"), default="speed")
    chosen = parser.parse_args(arguments)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    report = sg.export(chosen.folder / "net.o", Net().executables(), target=chosen.target, optimize=chosen.optimize)
    print(report)
    (chosen.folder / "net.json").write_text(report.json())
    arrays = data()
    (chosen.folder / "digits.h").write_text(c_arrays(arrays))
    for name, array in arrays.items():
        (chosen.folder / f"{name}.bin").write_bytes(array.tobytes())


if __name__ == "__main__":
    main()
