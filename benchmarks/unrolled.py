"""Graphs that Python loops declare: how long compiling and a call take, as loops inside the program and unrolled.

    python benchmarks/unrolled.py [--graphs A,B] [--turns 250,2500] [--most-unrolled 100000]

For each graph and number of turns: the ops that are declared, gradients among them, the CPU seconds of the first answer
without a cache on disk (imports and declarations apart), the microseconds of a call of optimised code, the least of
several, and the peak of resident memory in MiB; for loops and, where there are at most ``--most-unrolled`` ops, for the
unrolled program (``STATICGRAD_DISABLE=reroll``). Each is a process of its own on one thread.

``tape`` is the graph of scalars of a benchmark of tapes, A. Rogozhnikov's "Fastest Autograd in the West" (2023):
softplus, sums of four, products and softmax over values of turns before. ``trades`` is a book of options that differ in
strike and maturity, ``cable`` an explicit step of 24 compartments with a gate, ``lstm`` an LSTM cell of 64 units on 32
sequences. ``picture`` composites discs over 64 x 64 points of three colours, and ``picture_scan`` does so in a loop
that is declared: give them 10, 30 and 100 turns, which are layers.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
CALL_SECONDS = 0.15  # calls are repeated for that long
REPEATS = 5
OURS, UNROLLED = "", "reroll"  # what STATICGRAD_DISABLE says


def tape(turns: int) -> tuple[Any, Any, list[Array]]:
    import staticgrad as sg

    x = sg.placeholder((100,), sg.float32)
    nodes = [x[i] for i in range(100)]
    for _ in range(turns):
        nodes.append(sg.nn.softplus(nodes[-10]))
        first, *others = nodes[-30:-10:5]
        for y in others:
            first = first + y
        nodes.append(first)
        nodes.append(nodes[-20] * nodes[-10])
        shares = sg.nn.softmax(sg.stack(nodes[-4:]), dim=0)
        nodes += [shares[i] for i in range(4)]
    return [nodes[-1], *sg.gradients(nodes[-1], [x])], [x], [np.linspace(0, 1, 100).astype(np.float32)]


def trades(turns: int) -> tuple[Any, Any, list[Array]]:
    import staticgrad as sg

    spot = sg.placeholder((turns,), sg.float64)
    vol, rate = sg.placeholder((), sg.float64), sg.placeholder((), sg.float64)
    book = sg.constant(0.0, dtype=sg.float64)
    for i, strike in enumerate(np.linspace(80.0, 120.0, turns).tolist()):
        years = 0.5 + i % 7 / 4
        deviation = vol * years**0.5
        high = (sg.log(spot[i] / strike) + (rate + 0.5 * vol * vol) * years) / deviation
        book = book + spot[i] * sg.ndtr(high) - strike * sg.exp(-rate * years) * sg.ndtr(high - deviation)
    arrays = [np.linspace(80.0, 120.0, turns), np.asarray(0.2), np.asarray(0.01)]
    return [book, *sg.gradients(book, [spot, vol, rate])], [spot, vol, rate], arrays


def cable(turns: int) -> tuple[Any, Any, list[Array]]:
    import staticgrad as sg

    start, conductance = sg.placeholder((24,), sg.float64), sg.placeholder((24,), sg.float64)
    volts, gate = start, start * 0 + 0.1
    for _ in range(turns):
        opens = 0.1 * (volts + 40) / (1 - sg.exp(-(volts + 40) / 10))
        closes = 4 * sg.exp(-(volts + 65) / 18)
        gate = gate + 0.01 * (opens * (1 - gate) - closes * gate)
        left, right = sg.concat([volts[:1], volts[:-1]]), sg.concat([volts[1:], volts[-1:]])
        volts = volts + 0.01 * (left - 2 * volts + right - conductance * gate * gate * gate * (volts - 50))
    energy = sg.sum(volts * volts)
    arrays = [np.arange(24) * 0.1 - 65.0, np.full(24, 0.1)]
    return [energy, *sg.gradients(energy, [start, conductance])], [start, conductance], arrays


def lstm(turns: int) -> tuple[Any, Any, list[Array]]:
    import staticgrad as sg

    rows, units = 32, 64
    x = sg.placeholder((turns, rows, units))
    weight, bias = sg.placeholder((2 * units, 4 * units)), sg.placeholder((4 * units,))
    hidden = cell = sg.zeros((rows, units))
    for turn in range(turns):
        gates = sg.split(sg.concat([x[turn], hidden], axis=1) @ weight + bias, 4, axis=1)
        let_in, kept, let_out = map(sg.nn.sigmoid, gates[:3])
        cell = kept * cell + let_in * sg.tanh(gates[3])
        hidden = let_out * sg.tanh(cell)
    loss = sg.sum(hidden * hidden)
    rng = np.random.default_rng(0)
    shapes = ((turns, rows, units), (2 * units, 4 * units), (4 * units,))
    arrays = [(rng.normal(size=shape) * 0.1).astype(np.float32) for shape in shapes]
    return [loss, *sg.gradients(loss, [weight, bias])], [x, weight, bias], arrays


def _discs(turns: int, scanned: bool) -> tuple[Any, Any, list[Array]]:
    """Discs with soft edges over one another, and gradients by their centres, radii and colours."""
    import staticgrad as sg

    side = 64
    centres, radii, colours = sg.placeholder((turns, 2)), sg.placeholder((turns,)), sg.placeholder((turns, 3))
    target = sg.placeholder((side, side, 3))
    ys, xs = (sg.constant(axis.astype(np.float32) / side) for axis in np.mgrid[:side, :side])

    def layer(picture: Any, centre: Any, radius: Any, colour: Any) -> Any:
        distance = sg.sqrt((xs - centre[0]) ** 2 + (ys - centre[1]) ** 2 + 1e-6)
        alpha = sg.nn.sigmoid((radius - distance) * 20.0)[:, :, None]
        return picture * (1 - alpha) + alpha * colour

    picture = sg.zeros((side, side, 3))
    if scanned:
        picture, _ = sg.scan(lambda before, disc: (layer(before, *disc), ()), picture, (centres, radii, colours))
    else:
        for turn in range(turns):
            picture = layer(picture, centres[turn], radii[turn], colours[turn])
    loss = sg.mean((picture - target) ** 2)
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0, 1, shape).astype(np.float32) for shape in ((turns, 2), (turns,), (turns, 3))]
    arrays[1] = arrays[1] * np.float32(0.25) + np.float32(0.05)
    arrays.append(rng.uniform(0, 1, (side, side, 3)).astype(np.float32))
    feeds = [centres, radii, colours, target]
    return [loss, *sg.gradients(loss, feeds[:3])], feeds, arrays


def picture(turns: int) -> tuple[Any, Any, list[Array]]:
    return _discs(turns, scanned=False)


def picture_scan(turns: int) -> tuple[Any, Any, list[Array]]:
    return _discs(turns, scanned=True)


GRAPHS: dict[str, Callable[[int], tuple[Any, Any, list[Array]]]] = {
    f.__name__: f for f in (tape, trades, cable, lstm, picture, picture_scan)
}


def measured(name: str, turns: int) -> dict[str, float]:
    """The figures of one graph, in this process."""
    import staticgrad as sg
    from staticgrad.base.depth import all_levels

    with sg.Graph() as warm:  # imports, and what every executable shares
        x = sg.placeholder((2, 2))
        sg.Session(warm).run(sg.exp(x) @ x, {x: np.zeros((2, 2), np.float32)})
    graph = sg.Graph()
    with graph, all_levels():
        fetches, feeds, arrays = GRAPHS[name](turns)
    session = sg.Session(graph, num_threads=1)
    begun = time.process_time()
    executable = session.compile(fetches, feeds)
    executable(*arrays)
    first = time.process_time() - begun
    executable.wait()
    calls = []
    for _ in range(REPEATS):
        begun, count = time.perf_counter(), 0
        while time.perf_counter() - begun < CALL_SECONDS:
            executable(*arrays)
            count += 1
        calls.append((time.perf_counter() - begun) / count)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"ops": len(graph.nodes), "seconds": first, "us": min(calls) * 1e6, "MiB": peak}


def process(name: str, turns: int, disabled: str) -> dict[str, float]:
    """The same in a process of its own."""
    environment = {**os.environ, "STATICGRAD_CACHE": "0", "STATICGRAD_DISABLE": disabled}
    command = [sys.executable, __file__, "--child", name, str(turns)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default="tape,trades,cable,lstm")
    parser.add_argument("--turns", default="250,2500")
    parser.add_argument("--most-unrolled", type=int, default=100_000)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measured(arguments.child[0], int(arguments.child[1]))))
        return
    print(f"{'graph':12} {'ops':>8}  {'first answer s':>22}  {'call us':>24}  {'peak MiB':>16}")
    print(f"{'':21}  {'loops':>10} {'unrolled':>11}  {'loops':>12} {'unrolled':>11}  {'loops':>7} {'unrolled':>8}")
    for name in arguments.graphs.split(","):
        for turns in map(int, arguments.turns.split(",")):
            ours = process(name, turns, OURS)
            few = ours["ops"] <= arguments.most_unrolled
            other = process(name, turns, UNROLLED) if few else dict.fromkeys(ours, float("nan"))
            print(
                f"{name:12} {ours['ops']:8.0f}  {ours['seconds']:10.2f} {other['seconds']:11.2f}"
                f"  {ours['us']:12.1f} {other['us']:11.1f}  {ours['MiB']:7.0f} {other['MiB']:8.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
