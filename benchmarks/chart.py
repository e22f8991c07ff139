"""Charts: of a run, the time of every peer over staticgrad's by workload; of the history, ratios over commits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from figures import CALLS, RATIO, column, geometric_mean
from history import Record
from peers import PEERS
from report import Results
from turns import OURS

BAR = 0.8  # of the height that a workload has
INCHES_A_BAR = 0.11
SHOWN = ("mlp_small", "lenet", "transformer_block", "lstm", "black_scholes_f64", "gemm_1024")  # over commits
LABELS = 4  # of commits that fit below a panel


def draw(results: Results, path: Path) -> None:
    """Write the picture, SVG or PNG by the name's ending. ``ImportError`` without matplotlib."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    peers = [peer for peer in results.plan.peers if peer != OURS]
    names = list(results.rows)
    height = BAR / max(len(peers), 1)
    figure, axes = plt.subplots(figsize=(9, 1.5 + INCHES_A_BAR * len(names) * (len(peers) + 2)), layout="constrained")
    for place, peer in enumerate(peers):
        at, widths = [], []
        for line, name in enumerate(names):
            ratio = next((row.ratio for row in results.rows[name] if row.peer == peer and not row.error), math.nan)
            if not math.isnan(ratio):
                at.append(line + (place - (len(peers) - 1) / 2) * height)
                widths.append(1 / ratio - 1)
        # from one to the ratio: what points to the left is faster than staticgrad
        axes.barh(at, widths, height, left=1, label=PEERS[peer].title)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel(f"time of a call over staticgrad's, {results.plan.threads} thread(s)")
    axes.grid(axis="x", which="major", alpha=0.3)
    if peers:
        axes.legend(fontsize="small")
    figure.savefig(path)
    plt.close(figure)


def draw_mean(records: Sequence[Record], path: Path) -> None:
    """Write a picture of the geometric mean of the ratios over commits, a line for each machine and setting."""
    draw_over_commits(records, {"geometric mean": lambda ratios: geometric_mean(list(ratios.values()))}, path)


def draw_workloads(records: Sequence[Record], path: Path) -> None:
    """Write pictures of the ratios of some workloads over commits, a line for each machine and setting."""
    draw_over_commits(records, {name: lambda ratios, name=name: ratios.get(name, math.nan) for name in SHOWN}, path)


def draw_over_commits(
    records: Sequence[Record], values: dict[str, Callable[[dict[str, float]], float]], path: Path
) -> None:
    """Write a panel for each value of the ratios of a run, by its title, over the commits in the order of the runs.
    ``ImportError`` without matplotlib."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    runs = [record for record in records if record.benchmark == "run"]
    places = {commit: place for place, commit in enumerate(dict.fromkeys(record.commit for record in runs))}
    series: dict[str, list[Record]] = {}
    for record in runs:
        series.setdefault(record.series, []).append(record)
    rows = -(-len(values) // 3)
    figure, grid = plt.subplots(
        rows, min(len(values), 3), figsize=(9, 1.2 + 2.3 * rows), sharex=True, squeeze=False, layout="constrained"
    )
    for axes, (title, value) in zip(grid.flat, values.items(), strict=True):
        for name, found in series.items():
            last = {record.commit: value(column(record, CALLS, RATIO)) for record in found}
            axes.plot([places[commit] for commit in last], list(last.values()), marker="o", label=name)
        _label(axes, title, places, runs)
    figure.supylabel("time over the best peer's", fontsize="medium")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper left", fontsize="small", frameon=False)
    figure.savefig(path)
    plt.close(figure)


def _label(axes: Any, title: str, places: dict[str, int], runs: Sequence[Record]) -> None:
    """Some commits with the days of their runs below, the newest among them, and one as the level of the best peer."""
    days = {record.commit: record.date[:10] for record in runs}
    shown = list(places)[:: -max(1, -(-len(places) // LABELS))]
    axes.set_title(title, fontsize="medium")
    labels = [f"{commit[:8]}\n{days[commit]}" for commit in shown]
    axes.set_xticks([places[commit] for commit in shown], labels, fontsize="x-small")
    axes.set_xlim(-0.5, max(len(places), 1) - 0.5)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    axes.grid(axis="y", alpha=0.3)
