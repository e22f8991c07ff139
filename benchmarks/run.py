"""Measure staticgrad beside the peers that are installed, in one run.

    python benchmarks/run.py [--workload NAMES] [--peer NAMES] [--threads N] [--seed N] [--json FILE] [--quick]

Each peer works in a process of its own, pinned to the same processors, with its thread pools set to the same size. Its
answer is checked first. Then the peers take turns (A B C A B C …) while the others wait, so that what else the machine
does meets all of them; a ratio is the median over the rounds of the ratios within a round. Goes out: tables in Markdown
on standard output and, with ``--json``, everything that was measured.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from peers import PEERS
from workloads import BUILDERS, WITHOUT_NUMPY, Workload, load

HERE = Path(__file__).resolve().parent
OURS = "staticgrad"
POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
Answers = list[list[float]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run was asked to do."""

    workloads: tuple[str, ...]
    peers: tuple[str, ...]
    threads: int
    seed: int
    rounds: int
    seconds: float  # of each peer's turn


class Peer:
    """A process that measures one peer on one workload; see ``measure.py``."""

    def __init__(self, plan: Plan, peer: str, workload: str, *, double: bool = False) -> None:
        command = [sys.executable, "measure.py", peer, workload, str(plan.threads), str(plan.seed)]
        self.process = subprocess.Popen(
            [*command, *(["--double"] if double else [])],
            cwd=HERE, env=environment(plan.threads), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self.process.pid, processors(plan.threads))
        self.started: dict[str, Any] = self._reply()

    def _reply(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate()
            raise RuntimeError((errors.strip().splitlines() or [f"exit status {self.process.returncode}"])[-1])
        return json.loads(line)

    def time(self, seconds: float) -> list[float]:
        assert self.process.stdin is not None
        print("time", seconds, file=self.process.stdin, flush=True)
        reply: list[float] = self._reply()
        return reply

    def end(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.close()
        reply: dict[str, Any] = self._reply()
        self.process.wait()
        return reply

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def environment(threads: int) -> dict[str, str]:
    """Pools of one size, no accelerators, and cold caches."""
    pools = dict.fromkeys(POOLS, str(threads))
    return os.environ | pools | {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "STATICGRAD_CACHE": "0"}


def processors(threads: int) -> set[int]:
    """The last of those that this process may use: the first ones serve most interrupts."""
    return set(sorted(os.sched_getaffinity(0))[-threads:])


# -- answers --------------------------------------------------------------------------------------------------------


def reference_peer(workload: str, peers: tuple[str, ...]) -> str | None:
    """Who answers in float64: NumPy where it has the workload, else PyTorch if it is there."""
    if workload not in WITHOUT_NUMPY:
        return "numpy"
    return "torch" if "torch" in peers or installed("torch") else None


def reference(plan: Plan, workload: str) -> Answers | None:
    peer = reference_peer(workload, plan.peers)
    if peer is None:
        return None
    process = Peer(plan, peer, workload, double=True)
    process.end()
    answers: Answers = process.started["answers"]
    return answers


def mismatch(actual: Answers, expected: Answers, tolerance: float) -> str | None:
    """Where an answer leaves the reference by more than the tolerance."""
    if [len(a) for a in actual] != [len(e) for e in expected]:
        return (
            f"expected {len(expected)} results of sizes {[len(e) for e in expected]}, actual {[len(a) for a in actual]}"
        )
    for number, (a, e) in enumerate(zip(actual, expected, strict=True)):
        error = float(np.max(np.abs(np.subtract(a, e)))) / max(float(np.max(np.abs(e))), 1e-30)
        if not error <= tolerance:
            return f"result {number}: relative error {error:.1e}, allowed {tolerance:.0e}"
    return None


# -- measuring ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Row:
    """What was measured of one peer on one workload."""

    workload: str
    peer: str
    version: str = ""
    error: str = ""
    checked: bool = False
    import_s: float = 0.0
    build_s: float = 0.0
    first_call_s: float = 0.0
    imported_mb: float = 0.0
    peak_mb: float = 0.0
    rounds_us: list[float] = field(default_factory=list)  # median call of each round
    least_us: float = 0.0
    ratio: float = 0.0  # staticgrad's time over this peer's

    @property
    def median_us(self) -> float:
        return statistics.median(self.rounds_us) if self.rounds_us else 0.0


def installed(peer: str) -> bool:
    return importlib.util.find_spec(peer) is not None


def measure(plan: Plan, name: str) -> list[Row]:
    """All peers on one workload."""
    workload = load(name, plan.seed)
    expected = reference(plan, name)
    rows: dict[str, Row] = {}
    running: dict[str, Peer] = {}
    try:
        for peer in plan.peers:
            if name in WITHOUT_NUMPY and peer == "numpy":
                continue
            rows[peer] = Row(name, peer)
            try:
                process = Peer(plan, peer, name)
            except RuntimeError as error:
                rows[peer].error = str(error)
                continue
            running[peer] = process
            answers = _start(rows[peer], process, workload, expected)
            expected = answers if expected is None and not rows[peer].error else expected
        _take_turns(plan, {peer: p for peer, p in running.items() if not rows[peer].error}, rows)
    finally:
        for process in running.values():
            process.kill()
    return list(rows.values())


def _start(row: Row, process: Peer, workload: Workload, expected: Answers | None) -> Answers:
    started = dict(process.started)
    answers: Answers = started.pop("answers")
    for key, value in started.items():
        setattr(row, key, value)
    if expected is not None:
        row.error = mismatch(answers, expected, workload.tolerance) or ""
        row.checked = not row.error
    return answers


def _take_turns(plan: Plan, running: dict[str, Peer], rows: dict[str, Row]) -> None:
    least: dict[str, list[float]] = {peer: [] for peer in running}
    for _ in range(plan.rounds):
        for peer, process in running.items():
            times = process.time(plan.seconds)
            rows[peer].rounds_us.append(statistics.median(times) * 1e6)
            least[peer].append(min(times) * 1e6)
    for peer, process in running.items():
        rows[peer].least_us = min(least[peer])
        rows[peer].peak_mb = process.end()["peak_mb"]
        if OURS in running:
            pairs = zip(rows[OURS].rounds_us, rows[peer].rounds_us, strict=True)
            rows[peer].ratio = statistics.median(ours / theirs for ours, theirs in pairs)


# -- reports --------------------------------------------------------------------------------------------------------


def number(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def table(header: list[str], lines: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *lines))


def speed(workload: Workload, row: Row) -> str:
    """The formula's work over the time."""
    if not row.median_us:
        return ""
    if workload.flops and workload.kind != "infer":
        return f"{workload.flops / row.median_us / 1e3:,.1f} GFLOP/s"
    return f"{workload.traffic / row.median_us / 1e3:,.1f} GB/s" if workload.traffic else ""


def calls_table(plan: Plan, results: dict[str, list[Row]]) -> str:
    """Warm calls: µs, and staticgrad's time over the peer's (below 1 staticgrad is faster)."""
    header = ["workload", *(f"{peer}, µs" for peer in plan.peers), *(f"/ {p}" for p in plan.peers if p != OURS), OURS]
    lines = []
    for name, rows in results.items():
        by_peer = {row.peer: row for row in rows}
        line = [name]
        for peer in plan.peers:
            row = by_peer.get(peer)
            line.append("–" if row is None else "failed" if row.error else number(row.median_us))
        for peer in plan.peers:
            row = by_peer.get(peer)
            if peer != OURS:
                line.append(f"{row.ratio:.2g}" if row is not None and row.ratio else "–")
        ours = by_peer.get(OURS)
        lines.append([*line, speed(load(name, plan.seed), ours) if ours is not None else ""])
    return table(header, lines)


def phases_table(plan: Plan, results: dict[str, list[Row]]) -> str:
    """Seconds before the first answer (build, compile with the first call), and the process's highest memory."""
    header = ["workload"]
    for peer in plan.peers:
        header += [f"{peer}: build, s", "first call, s", "peak, MB"]
    lines = []
    for name, rows in results.items():
        by_peer = {row.peer: row for row in rows}
        line = [name]
        for peer in plan.peers:
            row = by_peer.get(peer)
            if row is None or row.error:
                line += ["–"] * 3
            else:
                line += [f"{row.build_s:.3f}", f"{row.first_call_s:.3f}", number(row.peak_mb)]
        lines.append(line)
    return table(header, lines)


def footprint_table(plan: Plan, results: dict[str, list[Row]]) -> str:
    """The median import over all workloads, NumPy being there already, and memory after it."""
    lines = []
    for peer in plan.peers:
        rows = [row for rows in results.values() for row in rows if row.peer == peer and row.version]
        if rows:
            seconds = statistics.median(row.import_s for row in rows)
            memory = statistics.median(row.imported_mb for row in rows)
            lines.append([peer, rows[0].version, f"{seconds:.2f}", number(memory)])
    return table(["peer", "version", "import, s", "memory after, MB"], lines)


def report(plan: Plan, results: dict[str, list[Row]]) -> str:
    parts = [
        f"{plan.threads} thread(s), {platform.machine()}, Python {platform.python_version()}, seed {plan.seed}, "
        f"{plan.rounds} rounds of {plan.seconds} s",
        calls_table(plan, results),
        phases_table(plan, results),
        footprint_table(plan, results),
    ]
    failed = [f"- {row.workload}, {row.peer}: {row.error}" for rows in results.values() for row in rows if row.error]
    unchecked = sorted({row.workload for rows in results.values() for row in rows if not row.checked and not row.error})
    if failed:
        parts.append("Failed:\n\n" + "\n".join(failed))
    if unchecked:
        parts.append(f"Without a float64 reference, peers are compared with each other: {', '.join(unchecked)}.")
    return "\n\n".join(parts)


def as_json(plan: Plan, results: dict[str, list[Row]]) -> Any:
    rows = [
        {key: getattr(row, key) for key in (*Row.__slots__, "median_us")} for rows in results.values() for row in rows
    ]
    return {"threads": plan.threads, "seed": plan.seed, "rounds": plan.rounds, "seconds": plan.seconds, "rows": rows}


# -- the command ----------------------------------------------------------------------------------------------------


def chosen(text: str | None, known: list[str], what: str) -> tuple[str, ...]:
    """Names between commas, in the order they are known; ``gemm_*`` stands for all that begin so."""
    if text is None:
        return tuple(known)
    found: set[str] = set()
    for name in text.split(","):
        matching = [k for k in known if k == name or (name.endswith("*") and k.startswith(name[:-1]))]
        if not matching:
            raise SystemExit(f"{what} {name!r}: expected some of {', '.join(known)}")
        found.update(matching)
    return tuple(k for k in known if k in found)


def parse(arguments: list[str]) -> tuple[Plan, str | None]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", metavar="NAMES", help="some of: " + ", ".join(BUILDERS))
    parser.add_argument("--peer", metavar="NAMES", help="some of: " + ", ".join(PEERS))
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the data")
    parser.add_argument("--json", metavar="FILE", help="write everything that was measured there")
    parser.add_argument("--quick", action="store_true", help="short turns: whether all is well, not how fast it is")
    given = parser.parse_args(arguments)
    available = processors(given.threads) if hasattr(os, "sched_getaffinity") else range(given.threads)
    if not 1 <= given.threads <= len(available):
        raise SystemExit(f"--threads {given.threads}: expected 1 to the number of processors")
    peers = chosen(given.peer, [peer for peer in PEERS if given.peer or installed(peer)], "--peer")
    rounds, seconds = (2, 0.1) if given.quick else (5, 0.4)
    names = chosen(given.workload, list(BUILDERS), "--workload")
    return Plan(names, peers, given.threads, given.seed, rounds, seconds), given.json


def main(arguments: list[str]) -> int:
    plan, path = parse(arguments)
    results: dict[str, list[Row]] = {}
    for name in plan.workloads:
        print(name, end="", file=sys.stderr, flush=True)
        results[name] = measure(plan, name)
        for row in results[name]:
            print(f"  {row.peer} {row.error or number(row.median_us) + ' µs'}", end="", file=sys.stderr)
        print(file=sys.stderr, flush=True)
    print(report(plan, results))
    if path is not None:
        Path(path).write_text(json.dumps(as_json(plan, results), indent=1) + "\n", encoding="utf-8")
    return int(any(row.error for rows in results.values() for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
