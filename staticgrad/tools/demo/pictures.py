"""Pictures of a training: the course of loss and accuracy, and test digits with what the net takes them for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from staticgrad.graph.optable import Array
from staticgrad.tools.demo.training import Epoch

ROWS, COLUMNS = 6, 12


def draw_course(path: Path, title: str, history: Sequence[Epoch]) -> None:
    """Loss and accuracies by epoch, as a PNG."""
    figure = _figure(8, 4.5)
    losses = figure.subplots()
    epochs = [epoch.number for epoch in history]
    losses.plot(epochs, [epoch.loss for epoch in history], color="C0", marker=".")
    losses.set_yscale("log")
    losses.set_xlabel("epoch")
    losses.set_ylabel("training loss", color="C0")
    accuracies = losses.twinx()
    accuracies.plot(epochs, [100 * epoch.accuracy for epoch in history], color="C1", label="training (with dropout)")
    accuracies.plot(epochs, [100 * epoch.test_accuracy for epoch in history], color="C2", label="test")
    accuracies.set_ylabel("accuracy in %")
    accuracies.legend(loc="center right")
    losses.set_title(title)
    figure.savefig(path, dpi=120)


def draw_digits(path: Path, images: Array, labels: Array, predictions: Array) -> None:
    """A sheet of test digits (n, 1, 8, 8) with predictions, mistakes first and in red, as a PNG."""
    order = np.argsort(predictions == labels, kind="stable")[: ROWS * COLUMNS]
    figure = _figure(COLUMNS * 0.8, ROWS * 1.0)
    figure.subplots(ROWS, COLUMNS)
    for place in figure.axes:
        place.set_axis_off()
    for place, number in zip(figure.axes, order, strict=False):
        right = predictions[number] == labels[number]
        place.imshow(images[number, 0], cmap="gray_r", vmin=0, vmax=1)
        said = str(predictions[number]) if right else f"{predictions[number]}, is {labels[number]}"
        place.set_title(said, fontsize=9, color="black" if right else "red")
    figure.savefig(path, dpi=120)


def _figure(width: float, height: float) -> Any:
    """A figure of its own, in inches: neither a window nor state of the process."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")
