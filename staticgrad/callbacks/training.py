"""The books of a training loop, and what may look into them."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import numpy as np

from staticgrad.base import log


class Callback:
    """The base of callbacks: a subclass overrides what it wants to be told. Metrics are floats by name.

    Example:
        >>> class Largest(sg.callbacks.Callback):
        ...     loss = -np.inf
        ...
        ...     def on_step(self, run, metrics):
        ...         self.loss = max(self.loss, metrics["loss"])
        >>> with sg.callbacks.TrainingLoop(largest := Largest()) as run:
        ...     for epoch in run.epochs(1):
        ...         run.step(loss=0.5)
        ...         run.step(loss=0.25)
        >>> largest.loss
        0.5
    """

    def on_begin(self, run: TrainingLoop) -> None:
        """The loop begins."""

    def on_step(self, run: TrainingLoop, metrics: dict[str, float]) -> None:
        """A step was made; ``run.steps_made`` counts it."""

    def on_epoch(self, run: TrainingLoop, metrics: dict[str, float]) -> None:
        """An epoch was made: the means of its steps' metrics, and the epoch's own."""

    def on_end(self, run: TrainingLoop, error: BaseException | None) -> None:
        """The loop has ended, or an exception leaves it. It is called once, also where another callback fails."""


class TrainingLoop:
    """The books of a training loop: steps and epochs with their metrics, and the callbacks that are told of them.

    It is used as a context, so that files are closed and the best state is restored however the loop ends. Each epoch
    is also a line of the log ``staticgrad.training``.

    Args:
        callbacks: what is told, in this order.

    Attributes:
        history: the metrics of each epoch, with its number under ``"epoch"``.
        epoch: the number of the epoch, from 0. ``steps_made``: the number of steps so far, over all epochs.
        stopped: why the loop was stopped, or None.

    Raises:
        ValueError: a metric is no number, or steps are told of outside of epochs.

    Example:
        >>> w = sg.Variable([1.0, -2.0])
        >>> loss = (w * w).sum()
        >>> train = sg.optim.SGD(lr=0.1).minimize(loss)
        >>> sess = sg.Session()
        >>> step = sess.compile([loss, train], [])
        >>> with sg.callbacks.TrainingLoop(sg.callbacks.EarlyStopping("loss", patience=1, min_delta=0.1)) as run:
        ...     for epoch in run.epochs(100):
        ...         for _ in range(5):
        ...             run.step(loss=step()[0])
        >>> run.stopped
        'loss has not improved by 0.1 for 1 epoch'
        >>> [round(record["loss"], 3) for record in run.history]
        [2.48, 0.266, 0.029, 0.003]
    """

    def __init__(self, *callbacks: Callback) -> None:
        self.callbacks = callbacks
        self.history: list[dict[str, float]] = []
        self.epoch = -1
        self.steps_made = 0
        self.total: int | None = None  # epochs that are planned
        self.stopped: str | None = None
        self._sums: dict[str, tuple[float, int]] = {}  # of the steps of this epoch, with their number
        self._in_epoch = False

    def __enter__(self) -> Self:
        for callback in self.callbacks:
            callback.on_begin(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failed: Exception | None = None
        for callback in self.callbacks:
            try:
                callback.on_end(self, error)
            except Exception as other:
                failed = failed or other
        if failed is not None and error is None:
            raise failed

    def epochs(self, count: int | None = None) -> Iterator[int]:
        """The numbers of the epochs, from 0, until ``count`` or until something stops the loop. An epoch that the loop
        has not ended by ``end_epoch`` is ended when the next one begins.

        Args:
            count: how many epochs; None for as many as it takes until ``stop``.
        """
        self.total = count
        while self.stopped is None and (count is None or self.epoch + 1 < count):
            self.epoch += 1
            self._in_epoch = True
            yield self.epoch
            if self._in_epoch:
                self.end_epoch()

    def step(self, **metrics: Any) -> None:
        """A step was made, with these metrics: numbers, or arrays of one element."""
        if not self._in_epoch:
            raise ValueError("step: no epoch has begun; go through `for epoch in run.epochs(count):`")
        self.steps_made += 1
        numbers = _numbers(metrics)
        for name, value in numbers.items():
            total, count = self._sums.get(name, (0.0, 0))
            self._sums[name] = total + value, count + 1
        for callback in self.callbacks:
            callback.on_step(self, numbers)

    def end_epoch(self, **metrics: Any) -> dict[str, float]:
        """The epoch was made. Its record, which is returned and kept in ``history``, has the means of the steps'
        metrics and these, which take precedence."""
        if not self._in_epoch:
            raise ValueError("end_epoch: no epoch has begun, or it has ended already")
        means = {name: total / count for name, (total, count) in self._sums.items()}
        self._sums.clear()
        self._in_epoch = False
        record = {**means, **_numbers(metrics)}
        self.history.append({"epoch": self.epoch, **record})
        log.tell("training", log.INFO, f"epoch {self.epoch}: {shown(record)}")
        for callback in self.callbacks:
            callback.on_epoch(self, record)
        return record

    def stop(self, why: str) -> None:
        """Let the epoch be the last one."""
        self.stopped = self.stopped or why


def shown(metrics: dict[str, float]) -> str:
    """Metrics as text."""
    return ", ".join(f"{name} {value:.6g}" for name, value in metrics.items())


def _numbers(metrics: dict[str, Any]) -> dict[str, float]:
    found = {}
    for name, value in metrics.items():
        array = np.asarray(value)
        if array.size != 1 or (array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16"):
            raise ValueError(f"metric {name!r}: expected a number, got {array.dtype} of shape {array.shape}")
        found[name] = float(array.reshape(()))
    return found
