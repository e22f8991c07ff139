"""What a call costs from Python: nanoseconds around a kernel that takes next to none, beside peers that are installed.

    python benchmarks/calls.py [--rounds N] [--seconds S] [--elements N] [--json FILE]

Every case computes ``x + 1`` for a float32 array (with several feeds their sum): arrays in, an array out. A case is a
statement in a loop without a function of its own around it (``timeit``); all take turns, round after round, in one
process on one processor, and the least time of a case counts. ``out`` writes into a given array, ``fresh`` returns a
new one, ``held`` does so while the caller keeps the one before; ``loaded`` is the program exported and loaded
(``sg.load``), also as a step that changes a variable, and with its result in a dict. The first table has small arrays
(``--elements``), where nothing but the call is measured; the second has large ones, where a result needs memory. The
last table has a tape of ``sum(tanh(x @ a) @ b)`` for a few numbers: ``step`` forgets the gradients, goes forward,
backward twice, and reads a gradient; PyTorch is eager.

Goes out: tables in Markdown, nanoseconds and microseconds, and what a case costs over the same work with ``out``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import timeit
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from optimised import optimised

LARGE = (1 << 15, 1 << 18, 1 << 21, 1 << 23)  # elements of the second table: 128 KiB to 32 MiB
FEEDS = 4


@dataclass(slots=True)
class Case:
    """A statement over names; ``answer`` gives what it computes, for the check."""

    peer: str
    name: str
    statement: str
    names: dict[str, Any]
    least: float = float("inf")  # seconds of one call
    timer: timeit.Timer = field(init=False)
    loops: int = field(init=False, default=1)

    def __post_init__(self) -> None:
        self.timer = timeit.Timer(self.statement, globals=self.names)

    def answer(self) -> np.ndarray[Any, Any]:
        found = eval(self.statement.removeprefix("kept = "), self.names)  # statements of this file
        return np.asarray(self.names["out"] if found is None else found)

    def calibrate(self, seconds: float) -> None:
        """Choose how many calls a turn takes, which also warms up."""
        self.timer.timeit(3)
        while (taken := self.timer.timeit(self.loops)) < seconds / 4:
            self.loops = max(self.loops + 1, min(10 * self.loops, int(self.loops * seconds / max(taken, 1e-9))))

    def turn(self) -> None:
        self.least = min(self.least, self.timer.timeit(self.loops) / self.loops)


# -- the cases ------------------------------------------------------------------------------------------------------


def ours(elements: int, *, small: bool) -> list[Case]:
    import staticgrad as sg

    x = np.arange(elements, dtype=np.float32)
    names: dict[str, Any] = {"x": x, "out": np.empty_like(x)}
    with sg.Graph() as graph:
        feeds = [sg.placeholder((elements,)) for _ in range(FEEDS)]
        session = sg.Session(graph, num_threads=1)
        names |= {"run": session.run, "y": feeds[0] + 1.0, "total": sum(feeds[1:], feeds[0])}
        step, add = session.compile(names["y"], feeds[:1]), session.compile(names["total"], feeds)
        names |= {"step": optimised(step), "add": optimised(add)}
        names |= {"feed": {feeds[0]: x}, "all": dict.fromkeys(feeds, x), "listed": x.tolist() if small else None}
        names |= {"strided": np.repeat(x, 2)[::2]}
        if importlib.util.find_spec("torch") is not None:
            from torch import from_numpy

            names |= {"tensor": from_numpy(x), "written": from_numpy(names["out"])}
    statements = {"step, out": "step(x, out=out)", "step, fresh": "step(x)", "step, held": "kept = step(x)"}
    if small:
        arrays = ", ".join(["x"] * FEEDS)
        statements |= {
            f"step of {FEEDS} feeds, out": f"add({arrays}, out=out)",
            "run": "run(y, feed)",
            f"run of {FEEDS} feeds": "run(total, all)",
            "step of a list": "step(listed)",
            "step of a strided array": "step(strided)",
        }
        names |= loaded(x)
        statements |= {
            "loaded, out": "one(x, out=out)",
            "loaded, fresh": "one(x)",
            "loaded of a list": "one(listed)",
            "loaded step of a variable": "moved(x)[0]",
            "loaded, in a dict": "named(x)['y']",
        }
        if "tensor" in names:
            statements |= {"step of a torch tensor, out": "step(tensor, out=written)"}
    return [Case("staticgrad", name, statement, names) for name, statement in statements.items()]


def loaded(x: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Programs that were exported and loaded, by their names in statements."""
    import staticgrad as sg

    with sg.Graph() as graph, tempfile.TemporaryDirectory() as folder:
        feed, w = sg.placeholder(x.shape), sg.Variable(np.zeros_like(x))
        session = sg.Session(graph, num_threads=1)
        y = feed + 1.0
        fetches = {"one": y, "moved": [y, sg.assign(w, w + feed)], "named": {"y": y}}
        for name, fetched in fetches.items():
            exe = session.compile(fetched, feed)
            exe(x)
            exe.export(Path(folder) / name, format="program")
        return {name: sg.load(Path(folder) / name) for name in fetches}


def numpys(elements: int) -> list[Case]:
    x = np.arange(elements, dtype=np.float32)
    names = {"x": x, "out": np.empty_like(x), "add": np.add, "one": np.float32(1)}
    statements = {"add, out": "add(x, one, out=out)", "add, fresh": "add(x, one)", "add, held": "kept = add(x, one)"}
    return [Case("numpy", name, statement, names) for name, statement in statements.items()]


def torchs(elements: int) -> list[Case]:
    import torch

    torch.set_num_threads(1)
    x = np.arange(elements, dtype=np.float32)
    names = {"x": x, "out": np.empty_like(x), "of": torch.from_numpy, "add": torch.add}
    return [
        Case("torch", "add, out", "add(of(x), 1.0, out=of(out))", names),
        Case("torch", "add, fresh", "add(of(x), 1.0).numpy()", names),
        Case("torch", "add, held", "kept = add(of(x), 1.0).numpy()", names),
    ]


def jaxs(elements: int) -> list[Case]:
    import jax

    step: Callable[[Any], Any] = jax.jit(lambda x: x + 1)
    names = {"x": np.arange(elements, dtype=np.float32), "step": step, "array": np.asarray}
    return [
        Case("jax", "jit, fresh", "array(step(x))", names),
        Case("jax", "jit, held", "kept = array(step(x))", names),
    ]


def cases(elements: int, *, small: bool) -> list[Case]:
    """All of them for one size; those of peers that are not installed are left out."""
    found = [*ours(elements, small=small), *numpys(elements)]
    for peer, make in (("torch", torchs), ("jax", jaxs)):
        if importlib.util.find_spec(peer) is not None:
            found += make(elements)
    return found


# -- tapes ----------------------------------------------------------------------------------------------------------


def operands() -> tuple[np.ndarray[Any, Any], ...]:
    random = np.random.default_rng(0)
    x, a, b = (random.normal(size=shape).astype(np.float32) for shape in ((4, 8), (8, 8), (8, 1)))
    return x, a, b


def gradient() -> np.ndarray[Any, Any]:
    """That of ``a``, twice."""
    x, a, b = operands()
    return np.asarray(2 * x.T @ ((1 - np.tanh(x @ a) ** 2) * b.T))


def our_tapes() -> list[Case]:
    import staticgrad as sg

    values = operands()
    with sg.Graph() as graph:
        x, a, b = sg.placeholder(values[0].shape), sg.Variable(values[1]), sg.Variable(values[2])
        loss = sg.sum(sg.tanh(x @ a) @ b)
        session = sg.Session(graph, num_threads=1)
    feed = {x: values[0]}

    def back(times: int) -> None:
        tape = session.forward(loss, feed)
        for left in reversed(range(times)):
            tape.backward(loss, retain_graph=left > 0)

    return tape_cases("staticgrad", back, session.zero_grad, lambda: session.grad(a))


def torch_tapes() -> list[Case]:
    import torch

    torch.set_num_threads(1)
    x, a, b = (torch.from_numpy(value) for value in operands())
    weights = [a.requires_grad_(), b.requires_grad_()]

    def back(times: int) -> None:
        loss = (torch.tanh(x @ a) @ b).sum()
        for left in reversed(range(times)):
            loss.backward(retain_graph=left > 0)

    def zero_grad() -> None:
        for w in weights:
            w.grad = None

    return tape_cases("torch", back, zero_grad, lambda: a.grad.numpy().copy())


def tape_cases(
    peer: str, back: Callable[[int], None], zero_grad: Callable[[], None], grad: Callable[[], Any]
) -> list[Case]:
    def step() -> Any:
        zero_grad()
        back(2)
        return grad()

    names = {"back": back, "step": step}
    statements = {"forward": "back(0)", "and backward": "back(1)", "and backward twice": "back(2)", "step": "step()"}
    return [Case(peer, name, statement, names) for name, statement in statements.items()]


def tapes(rounds: int, seconds: float) -> list[Case]:
    found = our_tapes()
    if importlib.util.find_spec("torch") is not None:
        found += torch_tapes()
    for case in found:
        if case.name == "step":
            np.testing.assert_allclose(case.answer(), gradient(), rtol=1e-4, atol=1e-5, err_msg=case.peer)
    return take_turns(found, rounds, seconds)


# -- measuring ------------------------------------------------------------------------------------------------------


def check(case: Case, elements: int) -> None:
    x = np.arange(elements, dtype=np.float32)
    want = x * FEEDS if str(FEEDS) in case.name else x + 1
    np.testing.assert_array_equal(case.answer(), want, err_msg=f"{case.peer}: {case.name}")


def measure(elements: int, rounds: int, seconds: float, *, small: bool) -> list[Case]:
    found = cases(elements, small=small)
    for case in found:
        check(case, elements)
    return take_turns(found, rounds, seconds)


def take_turns(found: list[Case], rounds: int, seconds: float) -> list[Case]:
    for case in found:
        case.calibrate(seconds)
    for _ in range(rounds):
        for case in found:
            case.turn()
    return found


def number(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"


def table(found: list[Case], unit: float, suffix: str) -> str:
    """A line for each case, with what it takes more than the same peer does with ``out``."""
    least = {case.peer: case.least for case in reversed(found) if case.name.endswith(", out")}
    lines = [f"| peer | call | {suffix} | over `out` |", "|---|---|---:|---:|"]
    for case in found:
        over = number((case.least - least[case.peer]) / unit) if case.peer in least else "–"
        lines.append(f"| {case.peer} | {case.name} | {number(case.least / unit)} | {over} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, metavar="N")
    parser.add_argument("--seconds", type=float, default=0.02, metavar="S", help="of a case's turn")
    parser.add_argument("--elements", type=int, default=4, metavar="N", help="of the small arrays")
    parser.add_argument("--json", metavar="FILE", help="write everything that was measured there")
    given = parser.parse_args(arguments)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    record: dict[str, dict[str, float]] = {}
    for elements in (given.elements, *LARGE):
        small = elements == given.elements
        found = measure(elements, given.rounds, given.seconds, small=small)
        record[str(elements)] = {f"{case.peer}: {case.name}": case.least for case in found}
        print(f"\n### {elements:,} elements\n")
        print(table(found, 1e-9, "ns") if small else table(found, 1e-6, "µs"), flush=True)
    found = tapes(given.rounds, given.seconds)
    record["tapes"] = {f"{case.peer}: {case.name}": case.least for case in found}
    print("\n### tapes\n")
    print(table(found, 1e-6, "µs"))
    if given.json is not None:
        Path(given.json).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
