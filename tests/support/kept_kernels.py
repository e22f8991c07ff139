"""Drawn programs in a process of its own: ``python -m support.kept_kernels SEED COUNT KIND…`` prints what they give.

Each kind makes of the same drawn graphs other programs that have kernels in common: all results and gradients,
results alone, one of them beside something new. Printed are, as JSON, a digest of the bits of each program's results,
and how many of its kernels were compiled and how many found on disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import staticgrad as sg
from staticgrad.graph.optable import FUNCTIONS

KINDS = ("whole", "results", "beside")


def programs(seed: int) -> Iterator[tuple[sg.Graph, list[Any], list[Any], dict[sg.Tensor, Any]]]:
    """A graph over the whole table, one with loops and sorts, one over every dtype: results, gradients, feeds."""
    from support.random_dtypes import drawn
    from support.random_graphs import random_graph
    from support.random_ops import random_ops

    for case in (random_ops(seed), random_graph(seed, advanced=True)):
        with case.graph:
            slopes = sg.gradients(case.loss, case.leaves, unconnected_gradients="zero")
        yield case.graph, list(case.results), list(slopes), dict(case.feeds)
    program = drawn(seed)
    yield program.graph, list(program.results), [], dict(zip(program.placeholders, program.feeds, strict=True))


def fetched(kind: str, graph: sg.Graph, results: list[Any], slopes: list[Any]) -> list[Any]:
    if kind == "whole":
        return results + slopes
    if kind == "results":
        return results
    with graph:
        return [*results, sg.sum(sg.astype(results[0], sg.float64) * 0.5)]


def run(seed: int, count: int, kinds: Sequence[str]) -> dict[str, tuple[str, int, int]]:
    """What programs give: the digest of their bits, kernels that were compiled, kernels that were found on disk."""
    found = {}
    for number in range(seed, seed + count):
        for place, (graph, results, slopes, feeds) in enumerate(programs(number)):
            for kind in kinds:
                with np.errstate(all="ignore"), sg.Session(graph, seed=0, num_threads=1 + number % 2) as session:
                    exe = session.compile(fetched(kind, graph, results, slopes), list(feeds), wait=True)
                    digest = hashlib.sha256()
                    for array in exe(*feeds.values()):
                        digest.update(np.asarray(array).tobytes())
                    setup = exe.setup
                counts = setup.kernels_compiled, setup.kernels_found_on_disk
                found[f"{number} {place} {kind}"] = digest.hexdigest(), *counts
    return found


def in_a_process(
    seed: int, count: int, kinds: Sequence[str], environment: Mapping[str, str]
) -> dict[str, tuple[str, int, int]]:
    """What ``run`` gives in a new process with these variables."""
    command = [sys.executable, "-W", "ignore", "-m", "support.kept_kernels", str(seed), str(count), *kinds]
    folder = str(Path(__file__).parents[1])
    made = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, f"the process of {command[-5:]} ended with {made.returncode}:\n{made.stderr[-3000:]}"
    return {name: tuple(row) for name, row in json.loads(made.stdout).items()}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    FUNCTIONS.complete()
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])))
