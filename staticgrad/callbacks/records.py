"""Records of a training: a line of progress, a CSV file, TensorBoard's event files."""

from __future__ import annotations

import csv
import importlib
import os
import time
from collections.abc import Callable
from typing import Any, TextIO

from staticgrad.base import progress
from staticgrad.callbacks.training import Callback, TrainingLoop, shown

BAR = 20  # characters
PACE = 0.1  # seconds after which the line is written again
COLUMNS = ("epoch", "step", "seconds")  # before those of the metrics


class ProgressBar(Callback):
    """A line on the terminal, or in the output of a notebook's cell, that follows steps and epochs. Elsewhere, and
    with ``STATICGRAD_PROGRESS=0``, nothing is written: the log ``staticgrad.training`` has a line an epoch.

    Args:
        steps: how many steps an epoch has, for the bar; by default those of the epoch before.

    Example:
        >>> with sg.callbacks.TrainingLoop(sg.callbacks.ProgressBar(steps=100)) as run:
        ...     for epoch in run.epochs(1):
        ...         run.step(loss=0.5)
    """

    def __init__(self, steps: int | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._steps = steps
        self._clock = clock
        self._place: progress.Terminal | progress.CellOutput | None = None
        self._begun = self._due = 0.0
        self._before = 0  # steps of the epochs before

    def on_begin(self, run: TrainingLoop) -> None:
        self._place = progress.display()
        self._begun = self._due = self._clock()

    def on_step(self, run: TrainingLoop, metrics: dict[str, float]) -> None:
        now = self._clock()
        if self._place is not None and now >= self._due:
            self._due = now + PACE
            self._place.show(self._line(run, metrics))

    def on_epoch(self, run: TrainingLoop, metrics: dict[str, float]) -> None:
        self._steps = self._steps or run.steps_made - self._before
        if self._place is not None:
            self._place.show(self._line(run, metrics))
        self._before = run.steps_made

    def on_end(self, run: TrainingLoop, error: BaseException | None) -> None:
        if isinstance(self._place, progress.Terminal):
            self._place.end()

    def _line(self, run: TrainingLoop, metrics: dict[str, float]) -> str:
        done = run.steps_made - self._before
        epochs = f"epoch {run.epoch + 1}" + (f"/{run.total}" if run.total is not None else "")
        steps = f"{done} steps"
        if self._steps:
            filled = min(BAR, BAR * done // self._steps)
            steps = f"[{'#' * filled:.<{BAR}}] {done}/{self._steps}"
        return f"{epochs} {steps}, {shown(metrics)}, {self._clock() - self._begun:.0f} s"


class CSVLogger(Callback):
    """A row an epoch in a CSV file: the epoch's number, the steps so far, seconds, metrics. A row is in the file when
    the epoch has ended, whatever happens afterwards.

    Args:
        path: the file. It is written anew, or gone on with if ``append``.

    Raises:
        ValueError: an epoch has a metric that the first one, or the file's header, does not have.

    Example:
        >>> with sg.callbacks.TrainingLoop(sg.callbacks.CSVLogger("run.csv")) as run:
        ...     for epoch in run.epochs(2):
        ...         record = run.end_epoch(loss=0.5**epoch)
        >>> import pathlib
        >>> pathlib.Path("run.csv").read_text().splitlines()[0]
        'epoch,step,seconds,loss'
    """

    def __init__(self, path: str | os.PathLike[str], *, append: bool = False) -> None:
        self._path = os.fspath(path)
        self._append = append
        self._file: TextIO | None = None
        self._columns: list[str] = []
        self._begun = 0.0

    def on_begin(self, run: TrainingLoop) -> None:
        if self._append and os.path.exists(self._path):
            with open(self._path, encoding="utf-8", newline="") as file:
                self._columns = next(csv.reader(file), [])
        self._file = open(self._path, "a" if self._append else "w", encoding="utf-8", newline="")  # noqa: SIM115
        self._begun = time.monotonic()

    def on_epoch(self, run: TrainingLoop, metrics: dict[str, float]) -> None:
        assert self._file is not None
        writer = csv.writer(self._file, lineterminator="\n")
        if not self._columns:
            self._columns = [*COLUMNS, *metrics]
            writer.writerow(self._columns)
        new = [name for name in metrics if name not in self._columns]
        if new:
            raise ValueError(f"CSVLogger: {self._path} has no columns {', '.join(new)}: expected {self._columns}")
        values: dict[str, Any] = {
            "epoch": run.epoch, "step": run.steps_made, "seconds": f"{time.monotonic() - self._begun:.3f}", **metrics,
        }  # fmt: skip
        writer.writerow([values.get(name, "") for name in self._columns])
        self._file.flush()

    def on_end(self, run: TrainingLoop, error: BaseException | None) -> None:
        if self._file is not None:
            self._file.close()


class TensorBoard(Callback):
    """Scalars in TensorBoard's event files, by its package ``tensorboard``: metrics of steps under ``step/``, those of
    epochs under ``epoch/``.

    Args:
        folder: the run's folder, for ``tensorboard --logdir``.
        every: of how many steps one is written.

    Raises:
        ImportError: tensorboard is not installed.

    Example:
        >>> board = sg.callbacks.TensorBoard("runs/first", every=10)  # doctest: +SKIP
    """

    def __init__(self, folder: str | os.PathLike[str], *, every: int = 1) -> None:
        self._folder = os.fspath(folder)
        self._every = every
        self._writer: Any = None
        try:
            self._events = importlib.import_module("tensorboard.compat.proto.event_pb2")
            self._summaries = importlib.import_module("tensorboard.compat.proto.summary_pb2")
            self._writers = importlib.import_module("tensorboard.summary.writer.event_file_writer")
        except ImportError as error:
            raise ImportError("TensorBoard needs the package tensorboard: pip install tensorboard") from error

    def on_begin(self, run: TrainingLoop) -> None:
        self._writer = self._writers.EventFileWriter(self._folder)

    def on_step(self, run: TrainingLoop, metrics: dict[str, float]) -> None:
        if run.steps_made % self._every == 0:
            self._write("step", run.steps_made, metrics)

    def on_epoch(self, run: TrainingLoop, metrics: dict[str, float]) -> None:
        self._write("epoch", run.epoch, metrics)
        self._writer.flush()

    def on_end(self, run: TrainingLoop, error: BaseException | None) -> None:
        if self._writer is not None:
            self._writer.close()

    def _write(self, kind: str, number: int, metrics: dict[str, float]) -> None:
        values = [self._summaries.Summary.Value(tag=f"{kind}/{name}", simple_value=x) for name, x in metrics.items()]
        summary = self._summaries.Summary(value=values)
        self._writer.add_event(self._events.Event(wall_time=time.time(), step=number, summary=summary))
