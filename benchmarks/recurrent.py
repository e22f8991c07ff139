"""Recurrent layers beside PyTorch's: a training step, and the layer alone.

    python benchmarks/recurrent.py [--case NAMES] [--what train,infer] [--threads N] [--isa native|avx2] [--rounds N]

Each case is a layer under PyTorch's name and sizes; ``written`` is an LSTM that the user writes with ``sg.scan``,
``unrolled`` one that a Python loop declares. A training step is the layer, the mean square of what it gives against a
target, the gradients of all weights and a step of SGD; weights stay with the system, NumPy arrays go in and the loss
comes out. Losses of a few steps have to agree before anything is timed. Systems take turns; goes out: the medians of
both, and of PyTorch's time over ours within a turn (above 1 we are faster).
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import instruction_sets
import numpy as np
from numpy.typing import NDArray
from optimised import optimised

Array = NDArray[Any]
Call = Callable[[int], Any]  # of the number of the batch
BATCHES = 4
CHECKED = 4  # losses that have to agree
TOLERANCE = 1e-4
TURN_SECONDS = 0.15  # calls of a turn


@dataclass(frozen=True, slots=True)
class Case:
    """A layer (``form`` says how it is declared here), and the sizes of what it is given."""

    kind: str
    batch: int
    steps: int
    inputs: int
    hidden: int
    bidirectional: bool = False
    form: str = "layer"

    @property
    def features(self) -> int:
        """The features that it gives at each step."""
        return self.hidden * (1 + self.bidirectional)


CASES = {
    "lstm_large": Case("LSTM", 64, 32, 256, 512),
    "lstm": Case("LSTM", 32, 64, 64, 256),
    "lstm_small": Case("LSTM", 16, 50, 32, 64),
    "lstm_single": Case("LSTM", 1, 100, 64, 128),
    "lstm_two_ways": Case("LSTM", 32, 32, 64, 128, bidirectional=True),
    "gru": Case("GRU", 32, 64, 64, 256),
    "gru_small": Case("GRU", 16, 50, 32, 64),
    "gru_two_ways": Case("GRU", 32, 32, 64, 128, bidirectional=True),
    "written": Case("LSTM", 32, 64, 64, 256, form="written"),
    "unrolled": Case("LSTM", 32, 64, 64, 256, form="unrolled"),
}


def data(case: Case) -> tuple[list[tuple[Array, Array]], dict[str, Array]]:
    """Inputs and targets of some batches, and first weights by PyTorch's names."""
    rng = np.random.default_rng(0)
    gates = {"LSTM": 4, "GRU": 3}[case.kind]
    weights = {}
    for suffix in ("_l0", "_l0_reverse")[: 1 + case.bidirectional]:
        rows = gates * case.hidden
        shapes = {"weight_ih": (rows, case.inputs), "weight_hh": (rows, case.hidden), "bias_ih": (rows,),
                  "bias_hh": (rows,)}  # fmt: skip
        for name, shape in shapes.items():
            weights[name + suffix] = (rng.uniform(-1, 1, shape) / case.hidden**0.5).astype(np.float32)
    batches = []
    for _ in range(BATCHES):
        x = rng.standard_normal((case.steps, case.batch, case.inputs)).astype(np.float32)
        batches.append((x, rng.uniform(-0.5, 0.5, (case.steps, case.batch, case.features)).astype(np.float32)))
    return batches, weights


# -- systems ----------------------------------------------------------------------------------------------------------


def own_layer(case: Case, weights: dict[str, Array], x: Any) -> tuple[Any, Any]:
    """The results of the layer, in the graph that is being declared, and the module that has its weights, if any."""
    import staticgrad as sg

    if case.form == "layer":
        made = {"LSTM": sg.nn.LSTM, "GRU": sg.nn.GRU}[case.kind]
        layer = made(case.inputs, case.hidden, bidirectional=case.bidirectional)
        return layer(x)[0], layer
    w, u, b, d = (sg.Variable(weights[f"{name}_l0"]) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))

    def turn(state: Any, row: Any) -> Any:
        h, c = state
        i, f, g, o = sg.split(row @ sg.transpose(w) + b + (h @ sg.transpose(u) + d), 4, axis=-1)
        c = sg.nn.sigmoid(f) * c + sg.nn.sigmoid(i) * sg.tanh(g)
        h = sg.nn.sigmoid(o) * sg.tanh(c)
        return (h, c), h

    zeros = sg.zeros((case.batch, case.hidden))
    if case.form == "written":
        return sg.scan(turn, (zeros, zeros), x)[1], None
    state, outputs = (zeros, zeros), []
    for step in range(case.steps):
        state, h = turn(state, x[step])
        outputs.append(h)
    return sg.stack(outputs), None


def own(case: Case, trains: bool, threads: int) -> Call:
    import staticgrad as sg

    batches, weights = data(case)
    graph = sg.Graph()
    with graph:
        x, target = (sg.placeholder(array.shape) for array in batches[0])
        y, layer = own_layer(case, weights, x)
        if trains:
            loss = sg.mean((y - target) ** 2)
            feeds, fetches = [x, target], [loss, sg.optim.SGD(lr=0.1).minimize(loss)]
        else:
            feeds, fetches = [x], [y]
    session = sg.Session(graph, num_threads=threads)
    if layer is not None:
        layer.load_state_dict(session, weights)
    executable = optimised(session.compile(fetches, feeds))
    return lambda i: executable(*batches[i % BATCHES][: len(feeds)])[0]


def torch(case: Case, trains: bool, threads: int) -> Call:
    import torch

    torch.set_num_threads(threads)
    batches, weights = data(case)
    layer = getattr(torch.nn, case.kind)(case.inputs, case.hidden, bidirectional=case.bidirectional)
    layer.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    layer.flatten_parameters()
    sgd = torch.optim.SGD(layer.parameters(), lr=0.1, foreach=True)

    def train(i: int) -> Array:
        x, target = map(torch.from_numpy, batches[i % BATCHES])
        sgd.zero_grad(set_to_none=True)
        loss = torch.mean((layer(x)[0] - target) ** 2)
        loss.backward()
        sgd.step()
        found: Array = loss.detach().numpy()
        return found

    def infer(i: int) -> Array:
        with torch.inference_mode():
            found: Array = layer(torch.from_numpy(batches[i % BATCHES][0]))[0].numpy()
        return found

    return train if trains else infer


# -- measuring --------------------------------------------------------------------------------------------------------


def seconds(call: Call, count: int) -> float:
    """The time of one call, of several in a row."""
    begun = time.perf_counter()
    for i in range(count):
        call(i)
    return (time.perf_counter() - begun) / count


def measured(name: str, trains: bool, given: argparse.Namespace) -> tuple[float, float, float]:
    """Our median, PyTorch's, and that of the ratios."""
    case = CASES[name]
    calls = [make(case, trains, given.threads) for make in (own, torch)]
    for i in range(CHECKED):
        ours, theirs = (np.asarray(call(i), np.float64) for call in calls)
        if np.max(np.abs(ours - theirs)) > TOLERANCE * max(1.0, float(np.max(np.abs(theirs)))):
            raise SystemExit(f"{name}: staticgrad and PyTorch differ")
    counts = [max(1, round(TURN_SECONDS / seconds(call, 2))) for call in calls]
    turns = [[seconds(call, count) for call, count in zip(calls, counts, strict=True)] for _ in range(given.rounds)]
    medians = [statistics.median(turn[k] for turn in turns) for k in range(2)]
    return medians[0], medians[1], statistics.median(turn[1] / turn[0] for turn in turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", type=lambda text: text.split(","), default=["*"])
    parser.add_argument("--what", type=lambda text: text.split(","), default=["train", "infer"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--isa", choices=("native", "avx2"), default="native")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    if "OMP_NUM_THREADS" not in os.environ:  # libraries read it, and their instruction set, when a process starts
        wanted = instruction_sets.environment(given.isa, os.environ) | {"OMP_NUM_THREADS": str(given.threads)}
        os.execve(sys.executable, [sys.executable, *sys.argv], wanted)
    print("| case | what | µs | PyTorch, µs | PyTorch over ours |\n| --- | --- | ---: | ---: | ---: |")
    for name in (name for name in CASES if any(fnmatch.fnmatch(name, pattern) for pattern in given.case)):
        for what in given.what:
            ours, theirs, ratio = measured(name, what == "train", given)
            print(f"| {name} | {what} | {ours * 1e6:.0f} | {theirs * 1e6:.0f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
