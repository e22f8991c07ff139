"""Training: settings and images in, a trained session out.

Everything that decides a step follows from the seed and the number of its epoch: the order of the images, the learning
rate; and from the state: weights, Adam's slots, the random numbers of dropout, the number of epochs done. The state is
saved after each epoch, so training goes on from there as if it had never stopped, bit for bit.
"""

from __future__ import annotations

import contextlib
import csv
import os
import time
from collections.abc import Iterator
from dataclasses import astuple, field, fields
from pathlib import Path
from typing import Any

import numpy as np

import staticgrad as sg
from staticgrad import nn, optim
from staticgrad.base.errors import FormatError, StaticGradError
from staticgrad.base.frozen import frozen, record
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.optable import Array
from staticgrad.runtime.session.executable import Executable
from staticgrad.runtime.session.session import Session
from staticgrad.tools.demo.digits import Digits
from staticgrad.tools.demo.nets import RECIPES, Recipe

PLANNING_SECONDS = 0.5  # at most: the search ends when the placement reaches the lower bound


@frozen
class Settings:
    """The user's choices; None leaves the number of epochs to the net's recipe, and the seed to the checkpoint."""

    model: str = "conv"
    epochs: int | None = None
    seed: int | None = None
    out: Path = Path("demo-out")
    resume: bool = False
    progress: bool = True  # show a bar

    @property
    def recipe(self) -> Recipe:
        return RECIPES[self.model]

    def path(self, ending: str) -> Path:
        """A file of this net in the folder of results."""
        return self.out / f"{self.model}{ending}"


@frozen
class Epoch:
    """The figures of one epoch: its number from 1, mean loss and accuracy of its steps, accuracy on the test images."""

    number: int
    loss: float
    accuracy: float
    test_accuracy: float


@frozen
class Declared:
    """The graph of a training: one step, and the scores of the test images."""

    graph: Graph
    net: nn.Module
    images: Tensor
    labels: Tensor
    loss: Tensor
    accuracy: Tensor
    optimizer: optim.Adam
    train: Node
    epochs_done: Tensor
    test_images: Tensor
    test_scores: Tensor


def declare(recipe: Recipe, batch: int, test_count: int) -> Declared:
    """Declare a step on ``batch`` images, and the use of the same weights on ``test_count``."""
    graph = sg.Graph()
    with graph:
        images = sg.placeholder((batch, 1, 8, 8), sg.float32, name="images")
        labels = sg.placeholder((batch,), sg.int64, name="labels")
        net = recipe.make(sg.float32)
        scores = net(images)
        loss = sg.nn.cross_entropy(scores, labels)
        accuracy = sg.mean(sg.astype(sg.argmax(scores, axis=1) == labels, sg.float32))
        optimizer = sg.optim.Adam(lr=recipe.lr)
        train = optimizer.minimize(loss)
        epochs_done = sg.Variable(0, name="epochs_done", dtype=sg.int64, trainable=False)
        test_images = sg.placeholder((test_count, 1, 8, 8), sg.float32, name="test_images")
        test_scores = net.eval()(test_images)
    return Declared(graph, net, images, labels, loss, accuracy, optimizer, train, epochs_done, test_images, test_scores)


@record
class Training:
    """A net in training, with its session and the programs of it."""

    settings: Settings
    digits: Digits
    declared: Declared
    session: Session
    step: Executable
    predict: Executable
    compile_seconds: float
    history: list[Epoch] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    seconds: float = 0.0  # of the whole loop

    @property
    def batch(self) -> int:
        return int(np.asarray(self.declared.labels.shape)[0])

    @property
    def epochs_done(self) -> int:
        return int(self.session.get(self.declared.epochs_done))

    @property
    def epochs(self) -> int:
        """The number of epochs that the whole training has."""
        return self.settings.recipe.epochs if self.settings.epochs is None else self.settings.epochs

    def predictions(self) -> Array:
        """The classes that the net predicts for the test images: (n,) int64."""
        return np.asarray(np.argmax(self.predict(self.digits.test_images), axis=1))

    def test_accuracy(self) -> float:
        return float(np.mean(self.predictions() == self.digits.test_labels))


def start(settings: Settings, digits: Digits) -> Training:
    """Compile the programs, and take the state of the checkpoint if training shall be resumed.

    Raises:
        FormatError: the checkpoint is damaged or of another net.
        StaticGradError: there is no checkpoint to go on from, or it is another training than the settings say.
    """
    batch = min(settings.recipe.batch, len(digits.labels))
    declared = declare(settings.recipe, batch, len(digits.test_labels))
    session = sg.Session(declared.graph, seed=settings.seed or 0)
    began = time.perf_counter()
    step = session.compile(
        [declared.loss, declared.accuracy, declared.train],
        [declared.images, declared.labels],
        planning_seconds=PLANNING_SECONDS,
    )
    compile_seconds = time.perf_counter() - began
    predict = session.compile(declared.test_scores, [declared.test_images])
    training = Training(settings, digits, declared, session, step, predict, compile_seconds)
    if settings.resume:
        _resume(training)
    return training


def _resume(training: Training) -> None:
    settings = training.settings
    path = settings.path(".safetensors")
    if not path.exists():
        raise StaticGradError(f"{path}: no checkpoint to resume; train without --resume first")
    training.session.restore(path)
    done = training.epochs_done
    if settings.seed is not None and settings.seed != training.session.seed:
        raise StaticGradError(
            f"{path}: was trained with --seed {training.session.seed}, and goes on with no other than that"
        )
    if done > training.epochs:
        raise StaticGradError(f"{path}: {done} epochs are done already; ask for more than that with --epochs")
    training.history = [epoch for epoch in read_history(settings.path(".csv")) if epoch.number <= done]


def train(training: Training) -> None:
    """Train to the number of epochs asked for; the checkpoint and the history are written after each."""
    settings = training.settings
    settings.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    steps = (training.epochs - training.epochs_done) * (len(training.digits.labels) // training.batch)
    with _progress(steps, settings.progress) as bar:
        for number in range(training.epochs_done, training.epochs):
            bar.set_description(f"epoch {number + 1}/{training.epochs}")
            training.history.append(_epoch(training, number, bar))
            training.session.save(settings.path(".safetensors"))
            write_history(settings.path(".csv"), training.history)
    training.seconds = time.perf_counter() - began


def order_of(seed: int, epoch: int, count: int) -> Array:
    """The order in which an epoch, counted from 0, takes its images: from the seed and its number alone."""
    return np.random.default_rng([seed, epoch]).permutation(count)


def _epoch(training: Training, number: int, bar: Any) -> Epoch:
    declared, session, digits, batch = training.declared, training.session, training.digits, training.batch
    session.set(declared.optimizer.lr, training.settings.recipe.rate(number))
    order = order_of(session.seed, number, len(digits.labels))
    steps = len(order) // batch  # the remainder sits out; it is another one in every epoch
    sums = np.zeros(2)
    for chosen in order[: steps * batch].reshape(steps, batch):
        images, labels = digits.images[chosen], digits.labels[chosen]
        began = time.perf_counter()
        loss, accuracy, _ = training.step(images, labels)
        training.step_seconds.append(time.perf_counter() - began)
        sums += loss, accuracy
        bar.update()
    session.set(declared.epochs_done, number + 1)
    loss, accuracy = (float(value) for value in sums / steps)
    result = Epoch(number + 1, loss, accuracy, training.test_accuracy())
    bar.set_postfix(loss=f"{loss:.4f}", accuracy=f"{accuracy:.1%}", test=f"{result.test_accuracy:.1%}")
    return result


@contextlib.contextmanager
def _progress(steps: int, shown: bool) -> Iterator[Any]:
    from tqdm import tqdm

    with tqdm(total=steps, unit="step", disable=not shown or not steps, dynamic_ncols=True) as bar:
        yield bar


# -- the history ------------------------------------------------------------------------------------------------------

COLUMNS = tuple(f.name for f in fields(Epoch))


def write_history(path: Path, history: list[Epoch]) -> None:
    """A CSV file, a line an epoch; written whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(astuple(epoch) for epoch in history)
    os.replace(temporary, path)


def read_history(path: Path) -> list[Epoch]:
    """Read the epochs that ``write_history`` wrote; none where there is no such file.

    Raises:
        FormatError: something else is in the file.
    """
    if not path.exists():
        return []
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file, strict=True))
        if not rows or tuple(rows[0]) != COLUMNS:
            raise ValueError(f"expected the columns {','.join(COLUMNS)}")
        return [Epoch(int(number), *map(float, values)) for number, *values in rows[1:]]
    except (ValueError, TypeError, csv.Error) as error:
        raise FormatError(f"{path}: no history of a training: {error}") from error
