"""Actions on the state of a training: files of it, the best one again, an end where it goes wrong or no further."""

from __future__ import annotations

import collections
import math
import os
from typing import Any, Literal

from staticgrad.base.errors import NumericsError
from staticgrad.callbacks.training import Callback, TrainingLoop
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import Array
from staticgrad.runtime.session.session import Session

Direction = Literal["min", "max"]


class Best:
    """The best value of a metric so far. ``mode``: whether the least or the greatest is best; NaN never is."""

    def __init__(self, metric: str, mode: Direction, min_delta: float = 0.0) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode!r}: expected 'min' or 'max'")
        self.metric = metric
        self.value: float | None = None
        self._sign = 1.0 if mode == "min" else -1.0
        self._min_delta = min_delta

    def improves(self, metrics: dict[str, float]) -> bool:
        """True if the epoch is the best so far, by ``min_delta`` at least; it is noted.

        Raises:
            ValueError: the epoch has no such metric.
        """
        if self.metric not in metrics:
            raise ValueError(f"no metric {self.metric!r} in this epoch: expected one of {', '.join(metrics) or 'none'}")
        value = metrics[self.metric]
        if math.isnan(value):
            return False
        if self.value is not None and self._sign * (self.value - value) <= self._min_delta:
            return False
        self.value = value
        return True


class EarlyStopping(Callback):
    """Stops the loop when a metric has not improved for some epochs.

    Args:
        metric: its name in the records of epochs.
        patience: the epochs without an improvement after which the loop is stopped.
        min_delta: the least change that is an improvement.
        mode: ``"min"`` if less is better, ``"max"`` if more is.
        restore: a session whose variables, optimizer slots among them, are set to those of the best epoch when the loop
            ends, however it ends.

    Attributes:
        best: the best value, or None. ``best_epoch``: its epoch.

    Example:
        >>> stopping = sg.callbacks.EarlyStopping("valid", patience=2)
        >>> with sg.callbacks.TrainingLoop(stopping) as run:
        ...     for epoch, valid in zip(run.epochs(), [3.0, 1.0, 2.0, 1.5, 0.5]):
        ...         record = run.end_epoch(valid=valid)
        >>> (stopping.best, stopping.best_epoch, run.epoch)
        (1.0, 1, 3)
    """

    def __init__(
        self, metric: str, *, patience: int = 5, min_delta: float = 0.0, mode: Direction = "min",
        restore: Session | None = None,
    ) -> None:  # fmt: skip
        self._best = Best(metric, mode, min_delta)
        self._min_delta = min_delta
        self._patience = patience
        self._session = restore
        self._kept: dict[Tensor, Array] = {}
        self.best_epoch = -1

    @property
    def best(self) -> float | None:
        return self._best.value

    def on_epoch(self, run: TrainingLoop, metrics: dict[str, float]) -> None:
        if self._best.improves(metrics):
            self.best_epoch = run.epoch
            if self._session is not None:
                self._kept = {x: self._session.get(x) for x in self._session.graph.variables.values()}
        elif run.epoch - self.best_epoch >= self._patience:
            by = f" by {self._min_delta:g}" if self._min_delta else ""
            epochs = f"{self._patience} epoch{'s' if self._patience != 1 else ''}"
            run.stop(f"{self._best.metric} has not improved{by} for {epochs}")

    def on_end(self, run: TrainingLoop, error: BaseException | None) -> None:
        if self._session is not None and self._kept:
            self._session.set_all(self._kept)


class ModelCheckpoint(Callback):
    """Writes a session's variables and random state after epochs (``sess.save``), each file whole or not at all.

    Args:
        path: the file; ``{epoch}`` in it is the epoch's number.
        session: whose state it is.
        metric: write only where this metric of the epoch is the best so far; None: after every epoch.
        mode: ``"min"`` if less is better, ``"max"`` if more is.
        keep: how many files are kept where paths differ, the latest ones; None for all.

    Attributes:
        paths: the files that are there, the latest last.

    Example:
        >>> w = sg.Variable([1.0, 2.0])
        >>> sess = sg.Session()
        >>> last = sg.callbacks.ModelCheckpoint("w{epoch}.safetensors", sess, keep=2)
        >>> with sg.callbacks.TrainingLoop(last) as run:
        ...     for epoch in run.epochs(5):
        ...         record = run.end_epoch()
        >>> list(last.paths)
        ['w3.safetensors', 'w4.safetensors']
    """

    def __init__(
        self, path: str | os.PathLike[str], session: Session, *, metric: str | None = None, mode: Direction = "min",
        keep: int | None = None,
    ) -> None:  # fmt: skip
        self._path = os.fspath(path)
        self._session = session
        self._best = None if metric is None else Best(metric, mode)
        self._keep = keep
        self.paths: collections.deque[str] = collections.deque()

    def on_epoch(self, run: TrainingLoop, metrics: dict[str, float]) -> None:
        if self._best is not None and not self._best.improves(metrics):
            return
        path = self._path.replace("{epoch}", str(run.epoch))
        self._session.save(path)
        if path not in self.paths:
            self.paths.append(path)
        while self._keep is not None and len(self.paths) > self._keep:
            os.remove(self.paths.popleft())


class StopOnNaN(Callback):
    """Ends the loop with an error at the first step or epoch whose metric is NaN or infinite.

    Args:
        metrics: names; none for all.

    Raises:
        NumericsError: it names the metric, its value, the step and the epoch.

    Example:
        >>> with sg.callbacks.TrainingLoop(sg.callbacks.StopOnNaN()) as run:
        ...     for epoch in run.epochs(1):
        ...         run.step(loss=np.nan)
        Traceback (most recent call last):
            ...
        staticgrad.errors.NumericsError: metric 'loss' is nan at step 1 in epoch 0
    """

    def __init__(self, *metrics: str) -> None:
        self._names = metrics

    def on_step(self, run: TrainingLoop, metrics: dict[str, float]) -> None:
        self._look(f"step {run.steps_made} in epoch {run.epoch}", metrics)

    def on_epoch(self, run: TrainingLoop, metrics: dict[str, float]) -> None:
        self._look(f"epoch {run.epoch}", metrics)

    def _look(self, where: str, metrics: dict[str, Any]) -> None:
        for name, value in metrics.items():
            if not math.isfinite(value) and (not self._names or name in self._names):
                raise NumericsError(f"metric {name!r} is {value} at {where}")
