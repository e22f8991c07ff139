"""A bar chart of a run: for each workload the time of every peer over staticgrad's, on a logarithmic axis."""

from __future__ import annotations

import math
from pathlib import Path

from peers import PEERS
from report import Results
from turns import OURS

BAR = 0.8  # of the height that a workload has
INCHES_A_BAR = 0.11


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
