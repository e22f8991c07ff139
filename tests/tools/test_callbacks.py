"""What watches a training loop: however the loop ends, files are whole and the best state is there."""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base import progress


@pytest.fixture
def session() -> Any:
    """A session whose step adds one to its variable."""
    with sg.Graph() as graph:
        w = sg.Variable(np.zeros(2, np.float32), name="w")
        step = sg.assign(w, w + 1)
    with sg.Session(graph) as sess:
        yield sess, w, sess.compile([w, step], [])


def train(count: int, body: Callable[[sg.callbacks.TrainingLoop, int], Any], *callbacks: sg.callbacks.Callback) -> Any:
    """Go through a number of epochs."""
    with sg.callbacks.TrainingLoop(*callbacks) as run:
        for epoch in run.epochs(count):
            body(run, epoch)
    return run


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class Seen(sg.callbacks.Callback):
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.error: BaseException | None = None

    def on_begin(self, run: sg.callbacks.TrainingLoop) -> None:
        self.seen.append("begin")

    def on_step(self, run: sg.callbacks.TrainingLoop, metrics: dict[str, float]) -> None:
        self.seen.append(f"step {run.steps_made}")

    def on_epoch(self, run: sg.callbacks.TrainingLoop, metrics: dict[str, float]) -> None:
        self.seen.append(f"epoch {run.epoch} {metrics}")

    def on_end(self, run: sg.callbacks.TrainingLoop, error: BaseException | None) -> None:
        self.seen.append("end")
        self.error = error


def test_callbacks_are_told_in_order_and_epochs_have_the_means_of_steps() -> None:
    with sg.callbacks.TrainingLoop(seen := Seen()) as run:
        for epoch in run.epochs(2):
            run.step(loss=np.float32(1 + epoch))
            run.step(loss=np.array([3.0]))
            if epoch:
                run.end_epoch(valid=np.float64(7))
    assert seen.seen == [
        "begin", "step 1", "step 2", "epoch 0 {'loss': 2.0}",
        "step 3", "step 4", "epoch 1 {'loss': 2.5, 'valid': 7.0}", "end",
    ]  # fmt: skip
    assert run.history == [{"epoch": 0, "loss": 2.0}, {"epoch": 1, "loss": 2.5, "valid": 7.0}]


def test_an_error_in_the_loop_ends_the_callbacks_and_goes_on() -> None:
    seen, other = Seen(), Seen()

    class Broken(sg.callbacks.Callback):
        def on_end(self, run: sg.callbacks.TrainingLoop, error: BaseException | None) -> None:
            raise OSError("the disk is full")

    def fails(run: sg.callbacks.TrainingLoop, epoch: int) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        train(2, fails, seen, Broken(), other)
    assert isinstance(seen.error, KeyError)
    assert other.seen == ["begin", "end"]
    with pytest.raises(OSError, match="disk"), sg.callbacks.TrainingLoop(Broken(), other):
        pass
    assert other.seen[-1] == "end"


@pytest.mark.parametrize("bad", [np.zeros(2), "0.5", None, np.zeros((1, 2)), 1j])
def test_a_metric_that_is_no_number_is_refused_by_name(bad: Any) -> None:
    with sg.callbacks.TrainingLoop() as run:
        for _ in run.epochs(1):
            with pytest.raises(ValueError, match="metric 'loss': expected a number"):
                run.step(loss=bad)


def test_steps_outside_of_epochs_are_refused() -> None:
    with sg.callbacks.TrainingLoop() as run:
        with pytest.raises(ValueError, match="no epoch has begun"):
            run.step(loss=1.0)
        for _ in run.epochs(1):
            run.end_epoch()
            with pytest.raises(ValueError, match="has ended already"):
                run.end_epoch()


def test_early_stopping_restores_the_best_epoch(session: Any) -> None:
    sess, w, step = session
    stopping = sg.callbacks.EarlyStopping("valid", patience=2, mode="max", restore=sess)
    with sg.callbacks.TrainingLoop(stopping) as run:
        for epoch in run.epochs(10):
            step()
            run.end_epoch(valid=[1.0, 3.0, np.nan, 3.0, 9.0][epoch])
    assert (run.epoch, stopping.best_epoch, stopping.best) == (3, 1, 3.0)
    assert run.stopped == "valid has not improved for 2 epochs"
    assert sess.get(w).tolist() == [2, 2]


def test_early_stopping_restores_the_best_epoch_after_an_interruption(session: Any) -> None:
    sess, w, step = session

    def body(run: sg.callbacks.TrainingLoop, epoch: int) -> None:
        step()
        run.end_epoch(valid=abs(epoch - 1))
        if epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(10, body, sg.callbacks.EarlyStopping("valid", restore=sess))
    assert sess.get(w).tolist() == [2, 2]


def test_an_unknown_metric_is_named(session: Any) -> None:
    with pytest.raises(ValueError, match="no metric 'valid' in this epoch: expected one of loss"):
        train(1, lambda run, epoch: run.end_epoch(loss=1.0), sg.callbacks.EarlyStopping("valid"))
    with pytest.raises(ValueError, match="expected 'min' or 'max'"):
        sg.callbacks.EarlyStopping("valid", mode="least")  # type: ignore[arg-type]


def test_checkpoints_are_those_of_the_best_epochs(session: Any, tmp_path: Path) -> None:
    sess, w, step = session
    best = sg.callbacks.ModelCheckpoint(tmp_path / "best.safetensors", sess, metric="loss")
    with sg.callbacks.TrainingLoop(best) as run:
        for epoch in run.epochs(4):
            step()
            run.end_epoch(loss=[3.0, 1.0, np.nan, 2.0][epoch])
    sess.restore(tmp_path / "best.safetensors")
    assert sess.get(w).tolist() == [2, 2]


def test_a_csv_file_is_whole_after_each_epoch(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"

    def body(run: sg.callbacks.TrainingLoop, epoch: int) -> None:
        run.step(loss=epoch)
        run.end_epoch(valid=-epoch)
        assert [row["epoch"] for row in rows_of(path)] == [str(n) for n in range(epoch + 1)]
        if epoch == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(5, body, sg.callbacks.CSVLogger(path))
    assert [(row["loss"], row["valid"], row["step"]) for row in rows_of(path)] == [
        ("0.0", "0.0", "1"), ("1.0", "-1.0", "2"), ("2.0", "-2.0", "3"),
    ]  # fmt: skip
    with sg.callbacks.TrainingLoop(sg.callbacks.CSVLogger(path, append=True)) as run:
        for _ in run.epochs(1):
            run.end_epoch(valid=4.0)
    assert [row["valid"] for row in rows_of(path)][2:] == ["-2.0", "4.0"]


def test_a_metric_that_a_csv_file_has_no_column_for_is_named(tmp_path: Path) -> None:
    names = ("loss", "accuracy")
    with pytest.raises(ValueError, match="no columns accuracy"):
        train(2, lambda run, epoch: run.end_epoch(**{names[epoch]: 0.5}), sg.callbacks.CSVLogger(tmp_path / "run.csv"))


class Line(progress.Terminal):
    def __init__(self) -> None:
        self.texts: list[str] = []
        super().__init__(io.StringIO())

    def show(self, text: str) -> None:
        self.texts.append(text)


def test_the_bar_fills_in_an_epoch_and_follows_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    line, seconds = Line(), iter(range(1000))
    monkeypatch.setattr(progress, "display", lambda: line)
    with sg.callbacks.TrainingLoop(sg.callbacks.ProgressBar(clock=lambda: next(seconds))) as run:
        for _ in run.epochs(2):
            for _ in range(4):
                run.step(loss=0.5)
    assert line.texts[0] == "epoch 1/2 1 steps, loss 0.5, 2 s"
    assert line.texts[-2].startswith("epoch 2/2 [####################] 4/4, loss 0.5, ")
    assert line.texts[-5].startswith("epoch 2/2 [#####...............] 1/4, loss 0.5, ")


def test_no_bar_is_written_where_nobody_looks(capfd: pytest.CaptureFixture[str]) -> None:
    with sg.callbacks.TrainingLoop(sg.callbacks.ProgressBar(2)) as run:
        for _ in run.epochs(2):
            run.step(loss=0.5)
    assert capfd.readouterr() == ("", "")


def test_event_files_are_read_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with sg.callbacks.TrainingLoop(sg.callbacks.TensorBoard(tmp_path, every=2)) as run:
        for _ in run.epochs(2):
            for n in range(3):
                run.step(loss=n)
    found = EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in found.Scalars("step/loss")] == [(2, 1), (4, 0), (6, 2)]
    assert [(event.step, event.value) for event in found.Scalars("epoch/loss")] == [(0, 1), (1, 1)]


def test_tensorboard_that_is_not_installed_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboard.compat.proto.event_pb2", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        sg.callbacks.TensorBoard(tmp_path)


def test_nan_ends_the_loop_by_name() -> None:
    def body(run: sg.callbacks.TrainingLoop, epoch: int) -> None:
        run.step(other=np.nan)
        run.step(loss=np.inf)

    with pytest.raises(sg.NumericsError, match="metric 'loss' is inf at step 2 in epoch 0"):
        train(3, body, sg.callbacks.StopOnNaN("loss"))


def test_epochs_are_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "staticgrad"), sg.callbacks.TrainingLoop() as run:
        for _ in run.epochs(1):
            run.step(loss=0.25)
    assert caplog.record_tuples == [("staticgrad.training", logging.INFO, "epoch 0: loss 0.25")]


def test_a_summary_tells_of_open_sizes_shared_parameters_and_what_was_not_called() -> None:
    class Tied(sg.nn.Module):
        def __init__(self) -> None:
            self.first = sg.nn.Linear(3, 3)
            self.second = sg.nn.Linear(3, 3)
            self.second.weight = self.first.weight
            self.unused = sg.nn.BatchNorm1d(3)

        def forward(self, x: sg.Tensor) -> sg.Tensor:
            return sg.nn.relu(self.second(self.first(x)))

    with sg.Graph():
        net = Tied()
        x = sg.placeholder((sg.dim("n"), 3))
        loss = (net(x) ** 2).sum()
        sg.optim.SGD(0.1).minimize(loss)
        net.second.bias.requires_grad_(False)
        found = sg.nn.summary(net)
    rows = {row.name: row for row in found.rows}
    assert (rows[""].parameters, rows[""].trained) == (9 + 3 + 3 + 6, 9 + 3 + 6)
    assert rows["unused"].gives == ""
    assert rows["unused"].nbytes == 4 * 12 + 8
    assert {rows[name].gives for name in ("", "first", "second")} == {"float32[n, 3]"}
    assert "Tied" in repr(found)
    assert "<table" in found._repr_html_()
    assert "unused" in str(found)
