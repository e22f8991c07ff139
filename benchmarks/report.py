"""What was measured, as JSON, as Markdown, and as the tables of the history."""

from __future__ import annotations

import math
import os
import platform
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catalog import load
from figures import CALLS, RATIO, geometric_mean, number, summary, table
from history import Table
from peers import PEERS
from turns import OURS, Plan, Row

from staticgrad.runtime.measured.machine import MeasuredMachine


@dataclass(frozen=True, slots=True)
class Results:
    """All of one run. ``rows``: by workload."""

    plan: Plan
    machine: MeasuredMachine
    rows: dict[str, list[Row]]


# -- what follows from the rows ---------------------------------------------------------------------------------------


def ours(rows: Sequence[Row]) -> Row | None:
    return next((row for row in rows if row.peer == OURS and not row.error), None)


def best_peer(rows: Sequence[Row]) -> Row | None:
    """The fastest of the others."""
    others = [row for row in rows if row.peer != OURS and row.rounds_us and not row.error]
    return min(others, key=lambda row: row.median_us, default=None)


def ratios_to_best(results: Results) -> dict[str, float]:
    """By workload, staticgrad's time over that of the best peer."""
    found = {}
    for name, rows in results.rows.items():
        best = best_peer(rows)
        if best is not None and not math.isnan(best.ratio):
            found[name] = best.ratio
    return found


def floor_us(results: Results, name: str) -> float:
    workload = load(name, results.plan.seed)
    return results.machine.floor(workload.flops, workload.traffic, workload.dtype) * 1e6


# -- tables -----------------------------------------------------------------------------------------------------------


def _cell(rows: Sequence[Row], peer: str, text: str) -> str:
    """An attribute of a peer's row; ``text`` is its name."""
    row = next((row for row in rows if row.peer == peer), None)
    if row is None:
        return "–"
    return "failed" if row.error else number(getattr(row, text))


def calls_table(results: Results) -> str:
    """Warm calls, µs."""
    peers = results.plan.peers
    lines = [[name, *(_cell(rows, peer, "median_us") for peer in peers)] for name, rows in results.rows.items()]
    return table(["µs of a call", *peers], lines)


def verdict_table(results: Results) -> str:
    """What each workload is, the best peer, staticgrad's time over its, and the floor."""
    lines = []
    for name, rows in results.rows.items():
        mine, best, floor = ours(rows), best_peer(rows), floor_us(results, name)
        reached = "–" if mine is None or not mine.rounds_us else f"{floor / mine.median_us:.0%}"
        same = {None: "–", True: "yes", False: "no"}[None if mine is None else mine.same_bits]
        about = load(name, results.plan.seed).about
        peer, ratio = ("–", "–") if best is None else (best.peer, f"{best.ratio:.2f}")
        lines.append([name, about, peer, ratio, number(floor), reached, same])
    header = ["workload", "what", "best peer", "time over its", "floor, µs", "reached", "same bits on 1 and 2 threads"]
    return table(header, lines, texts=3)


def phases_table(results: Results) -> str:
    """Seconds before the first answer: declaring, then the first call with empty caches and with filled ones."""
    peers = results.plan.peers
    header = ["seconds: build, first call, with a warm cache", *peers]
    parts = ("build_s", "first_call_s", "warm_first_call_s")
    lines = [
        [name, *(" / ".join(_cell(rows, peer, part) for part in parts) for peer in peers)]
        for name, rows in results.rows.items()
    ]
    return table(header, lines)


def memory_table(results: Results) -> str:
    """The highest resident memory of each process; bytes planned for intermediate values where a peer tells."""
    peers = results.plan.peers
    telling = [
        peer for peer in peers
        if any(row.peer == peer and row.temporary_bytes >= 0 for rows in results.rows.values() for row in rows)
    ]  # fmt: skip
    header = ["memory", *(f"{peer}: peak, MB" for peer in peers), *(f"{peer}: arena, bytes" for peer in telling)]
    lines = []
    for name, rows in results.rows.items():
        peaks = [_cell(rows, peer, "peak_mb") for peer in peers]
        lines.append([name, *peaks, *(_cell(rows, peer, "temporary_bytes") for peer in telling)])
    return table(header, lines)


def footprint_table(results: Results) -> str:
    """The median import over all workloads, NumPy being there already, and memory after it."""
    lines = []
    for peer in results.plan.peers:
        rows = [row for rows in results.rows.values() for row in rows if row.peer == peer and row.version]
        if rows:
            seconds = statistics.median(row.import_s for row in rows)
            memory = statistics.median(row.imported_mb for row in rows)
            lines.append([peer, rows[0].version, f"{seconds:.2f}", number(memory)])
    return table(["peer", "version", "import, s", "memory after, MB"], lines, texts=2)


# -- documents --------------------------------------------------------------------------------------------------------


def processor() -> str:
    """The processor's name, on Linux as the kernel says it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def setting(results: Results) -> str:
    plan, peak = results.plan, results.machine.flops
    return (
        f"{plan.threads} thread{'s' * (plan.threads > 1)} on {processor()} ({os.cpu_count()} processors), "
        f"Python {platform.python_version()}, seed {plan.seed}, {plan.rounds} rounds of {plan.seconds} s. Measured "
        f"peaks: {peak['float32'] / 1e9:,.0f} GFLOP/s in float32, {peak['float64'] / 1e9:,.0f} in float64, copies of "
        f"64 MB at {results.machine.bandwidth(2**26) / 1e9:,.0f} GB/s read and written."
    )


def as_markdown(results: Results) -> str:
    parts = [setting(results), summary(ratios_to_best(results))]
    parts += [make(results) for make in (calls_table, verdict_table, phases_table, memory_table, footprint_table)]
    rows = [row for rows in results.rows.values() for row in rows]
    failed = [f"- {row.workload}, {row.peer}: {row.error}" for row in rows if row.error]
    unchecked = sorted({row.workload for row in rows if not row.checked and not row.error})
    if failed:
        parts.append("Failed:\n\n" + "\n".join(failed))
    if unchecked:
        parts.append(f"Without a float64 reference, peers are compared with each other: {', '.join(unchecked)}.")
    return "\n\n".join(parts) + "\n"


def as_json(results: Results) -> dict[str, Any]:
    """Everything; ``null`` where nothing was measured."""
    plan = results.plan

    def clean(value: Any) -> Any:
        return None if isinstance(value, float) and math.isnan(value) else value

    return {
        "processor": processor(),
        "threads": plan.threads,
        "seed": plan.seed,
        "rounds": plan.rounds,
        "seconds": plan.seconds,
        "machine": {"flops": results.machine.flops, "copies": results.machine.copies},
        "geometric_mean": clean(geometric_mean(list(ratios_to_best(results).values()))),
        "workloads": {name: _workload_json(results, name) for name in results.rows},
        "rows": [
            {key: clean(getattr(row, key)) for key in (*Row.__slots__, "median_us")}
            for rows in results.rows.values()
            for row in rows
        ],
    }


def _workload_json(results: Results, name: str) -> dict[str, Any]:
    workload, best = load(name, results.plan.seed), best_peer(results.rows[name])
    return {
        "about": workload.about,
        "flops": workload.flops,
        "traffic": workload.traffic,
        "floor_us": floor_us(results, name),
        "best_peer": None if best is None else best.peer,
        "ratio": ratios_to_best(results).get(name),
    }


def tables_of(results: Results) -> dict[str, Table]:
    """What the history keeps: the median call of each peer, and the ratio to the best one."""
    ratios = ratios_to_best(results)
    calls = {
        name: {row.peer: row.median_us for row in rows if row.rounds_us and not row.error} | {RATIO: ratios[name]}
        for name, rows in results.rows.items()
        if name in ratios
    }
    return {CALLS: calls}


def versions(results: Results) -> dict[str, str]:
    """Versions of the peers' packages."""
    rows = [row for rows in results.rows.values() for row in rows if row.version and row.peer != OURS]
    return {PEERS[row.peer].modules[0]: row.version for row in rows}
