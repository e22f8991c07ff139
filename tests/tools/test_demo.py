"""The demonstration: it learns, it goes on bit for bit, it says and draws what it should."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.runtime.files.tensorfile import headers
from staticgrad.tools.demo import Settings, run
from staticgrad.tools.demo.accuracy import gradient_difference
from staticgrad.tools.demo.digits import Digits, load
from staticgrad.tools.demo.nets import RECIPES
from staticgrad.tools.demo.training import Epoch, order_of, read_history, start, train, write_history

MODELS = tuple(RECIPES)
ENOUGH = {"conv": 0.98, "mlp": 0.965}  # what such nets reach in PyTorch is 98.6 % and 96.9 %


@pytest.fixture(scope="module")
def digits() -> Digits:
    return load()


@pytest.fixture(scope="module")
def few(digits: Digits) -> Digits:
    return Digits(digits.images[:200], digits.labels[:200], digits.test_images[:40], digits.test_labels[:40])


def settings(out: Path, model: str = "conv", **changes: object) -> Settings:
    return replace(Settings(model, epochs=2, seed=5, out=out, progress=False), **changes)


def trained(settings: Settings, digits: Digits) -> dict[str, np.ndarray]:
    """Every variable of the graph after a training."""
    training = start(settings, digits)
    train(training)
    return {name: training.session.get(variable) for name, variable in training.declared.graph.variables.items()}


def test_the_images(digits: Digits) -> None:
    assert digits.images.shape == (1437, 1, 8, 8)
    assert digits.test_images.shape == (360, 1, 8, 8)
    assert digits.images.dtype == np.float32
    assert digits.images.min() == 0
    assert digits.images.max() == 1
    assert set(digits.labels) == set(digits.test_labels) == set(range(10))


@pytest.mark.parametrize("model", MODELS)
def test_resumed_training_goes_on_bit_for_bit(model: str, few: Digits, tmp_path: Path) -> None:
    whole = trained(settings(tmp_path / "whole", model, epochs=3), few)
    trained(settings(tmp_path / "parts", model, epochs=1), few)
    parts = trained(settings(tmp_path / "parts", model, epochs=3, resume=True, seed=None), few)
    assert whole.keys() == parts.keys()
    for name, value in whole.items():
        assert value.tobytes() == parts[name].tobytes(), name
    one, other = (tmp_path / part / model for part in ("whole", "parts"))
    assert headers(one.with_suffix(".safetensors")) == headers(other.with_suffix(".safetensors"))  # the seed, draws
    assert one.with_suffix(".csv").read_bytes() == other.with_suffix(".csv").read_bytes()


def test_one_seed_gives_one_training(few: Digits, tmp_path: Path) -> None:
    first, second = (trained(settings(tmp_path / name), few) for name in ("a", "b"))
    other = trained(settings(tmp_path / "c", seed=6), few)
    assert all(np.array_equal(value, second[name]) for name, value in first.items())
    assert any(not np.array_equal(value, other[name]) for name, value in first.items())


def test_orders_follow_from_seed_and_epoch() -> None:
    assert np.array_equal(order_of(1, 2, 50), order_of(1, 2, 50))
    assert not np.array_equal(order_of(1, 2, 50), order_of(1, 3, 50))
    assert not np.array_equal(order_of(1, 2, 50), order_of(2, 2, 50))
    assert np.array_equal(np.sort(order_of(0, 0, 50)), np.arange(50))


def test_training_compiles_nothing_after_the_start(few: Digits, tmp_path: Path) -> None:
    training = start(settings(tmp_path), few)
    before = training.session.compile_count
    train(training)
    assert training.session.compile_count == before == 2
    assert float(training.session.get(training.declared.optimizer.lr)) == RECIPES["conv"].rate(1)


@pytest.mark.parametrize("model", MODELS)
def test_compiled_gradients_are_the_interpreter_s(model: str, few: Digits, tmp_path: Path) -> None:
    training = start(settings(tmp_path, model), few)
    weights = training.declared.net.state_dict(training.session)
    assert gradient_difference(RECIPES[model], weights, few.images[:32], few.labels[:32]) < 1e-5


def test_the_report_and_the_files(few: Digits, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = run(settings(tmp_path / "out"), few)
    assert report.epochs == 2
    assert report.mistakes == round((1 - report.test_accuracy) * 40)
    assert report.gradient_difference < 1e-5
    assert report.step_seconds is not None
    assert report.memory is not None
    assert report.memory.arena_bytes >= report.memory.lower_bound_bytes > 0
    printed = capsys.readouterr().out
    for words in ("test accuracy", "compile time", "µs", str(report.memory.arena_bytes), "lower bound", "gradients"):
        assert words in printed
    files = {path.name for path in (tmp_path / "out").iterdir()}
    pictures = {"conv-course.png", "conv-digits.png", "conv-memory.png"}
    assert files == {"conv.safetensors", "conv.csv", *pictures}
    for name in pictures:
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")
    names = {entry.name for entry in headers(tmp_path / "out" / "conv.safetensors")[0]}
    assert {"0.weight", "10.bias", "epochs_done"} <= names


def test_a_training_that_is_done_reports_without_a_step(few: Digits, tmp_path: Path) -> None:
    first = run(settings(tmp_path), few)
    again = run(settings(tmp_path, resume=True), few)
    assert again.step_seconds is None
    assert again.mistakes == first.mistakes
    assert "time a step" not in str(again)


def test_the_interpreter_trains_too(few: Digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    report = run(settings(tmp_path, "mlp", epochs=1), few)
    assert report.memory is None
    assert "arena" not in str(report)


def test_what_cannot_be_resumed(few: Digits, tmp_path: Path) -> None:
    with pytest.raises(sg.StaticGradError, match="no checkpoint to resume"):
        start(settings(tmp_path, resume=True), few)
    trained(settings(tmp_path), few)
    with pytest.raises(sg.StaticGradError, match="was trained with --seed 5"):
        start(settings(tmp_path, resume=True, seed=6), few)
    with pytest.raises(sg.StaticGradError, match="2 epochs are done already"):
        start(settings(tmp_path, resume=True, epochs=1), few)
    (tmp_path / "conv.csv").write_text("something else\n")
    with pytest.raises(sg.FormatError, match="no history"):
        start(settings(tmp_path, resume=True), few)
    (tmp_path / "conv.safetensors").write_bytes(b"damaged")
    with pytest.raises(sg.FormatError, match="damaged"):
        start(settings(tmp_path, resume=True), few)


def test_histories_come_back(tmp_path: Path) -> None:
    history = [Epoch(1, 2.25, 0.1, 1 / 3), Epoch(2, 1e-9, 1.0, 0.0)]
    write_history(tmp_path / "history.csv", history)
    assert read_history(tmp_path / "history.csv") == history
    assert read_history(tmp_path / "none.csv") == []


@pytest.mark.parametrize("model", MODELS)
def test_the_nets_learn(model: str, digits: Digits, tmp_path: Path) -> None:
    training = start(Settings(model, out=tmp_path, progress=False), digits)
    train(training)
    assert training.test_accuracy() >= ENOUGH[model]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("model", MODELS)
def test_the_nets_learn_from_other_seeds(model: str, seed: int, digits: Digits, tmp_path: Path) -> None:
    training = start(Settings(model, seed=seed, out=tmp_path, progress=False), digits)
    train(training)
    assert training.test_accuracy() >= ENOUGH[model]
