"""How long until the first answer: import, build, and compile with the first call, each in a fresh process.

    python benchmarks/startup.py [--workloads A,B] [--peer jax:PYTHON]... [--runs 5] [--threads 1] [--no-bytecode]

For each workload staticgrad starts *cold*, with an empty cache of programs, and *warm*, when an earlier process has
compiled the same; a peer always starts cold. NumPy is imported and the data are drawn before the clock starts. What
modules are compiled to lies in a folder of the benchmark's own, filled before anything is measured; with
``--no-bytecode`` Python compiles them every time. The least of several runs is told, in milliseconds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PHASES = ("import", "build", "first call")
Times = dict[str, float]


def measure(peer: str, workload: str, threads: int) -> Times:
    """The seconds of each phase, in this process."""
    from catalog import load
    from peers import PEERS, Settings

    loaded = load(workload, 0)
    entry = PEERS[peer]
    started = time.perf_counter()
    importlib.import_module(entry.modules[0])
    imported = time.perf_counter()
    module = importlib.import_module(f"peers.{entry.module}")
    program = module.build(loaded, Settings(threads, variant=entry.variant))
    built = time.perf_counter()
    program.compile()(*loaded.feeds[0])
    called = time.perf_counter()
    return dict(zip(PHASES, (imported - started, built - imported, called - built), strict=True))


class Processes:
    """Starts the measuring processes."""

    def __init__(self, folder: Path, threads: int, bytecode: bool) -> None:
        self._threads = threads
        self._cache = folder / "cache"
        self._environment = {
            **os.environ,
            "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
            "PYTHONDONTWRITEBYTECODE": "" if bytecode else "1",
            "STATICGRAD_CACHE_DIR": str(self._cache),
        }

    def run(self, python: str, peer: str, workload: str) -> Times:
        command = [python, __file__, "--child", peer, workload, str(self._threads)]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=True)
        times: Times = json.loads(done.stdout.splitlines()[-1])
        return times

    def forget(self) -> None:
        """Drop what staticgrad has kept."""
        for path in self._cache.glob("*"):
            path.unlink()


def least(runs: Sequence[Times]) -> Times:
    """The run that was over first."""
    return min(runs, key=lambda times: sum(times.values()))


def rows(processes: Processes, workload: str, peers: Sequence[tuple[str, str]], runs: int) -> list[tuple[str, Times]]:
    """Who starts how, and the times."""
    cold, warm = [], []
    processes.run(sys.executable, "staticgrad", workload)
    for _ in range(runs):
        processes.forget()
        cold.append(processes.run(sys.executable, "staticgrad", workload))
        warm.append(processes.run(sys.executable, "staticgrad", workload))
    found = [("staticgrad, cold", least(cold)), ("staticgrad, warm", least(warm))]
    for peer, python in peers:
        processes.run(python, peer, workload)
        found.append((peer, least([processes.run(python, peer, workload) for _ in range(runs)])))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", default="", help="names, comma-separated; default: all")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME:PYTHON", help="and an interpreter with it")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-bytecode", action="store_true")
    arguments = parser.parse_args()

    from catalog import NAMED

    names = arguments.workloads.split(",") if arguments.workloads else list(NAMED)
    peers = [tuple(peer.split(":", 1)) for peer in arguments.peer]
    print(f"{'workload':20} {'who':18} " + " ".join(f"{phase:>10}" for phase in (*PHASES, "together")))
    with tempfile.TemporaryDirectory() as folder:
        processes = Processes(Path(folder), arguments.threads, not arguments.no_bytecode)
        for name in names:
            for who, times in rows(processes, name, peers, arguments.runs):
                columns = [*(times[phase] for phase in PHASES), sum(times.values())]
                print(f"{name:20} {who:18} " + " ".join(f"{1e3 * t:10.1f}" for t in columns), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(measure(sys.argv[2], sys.argv[3], int(sys.argv[4]))))
    else:
        main()
