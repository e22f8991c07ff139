"""How long until the first answer: import, build, and compile with the first call, each in a fresh process.

    python benchmarks/startup.py [--workloads A,B] [--peer jax:PYTHON]... [--runs 5] [--threads 1] [--no-bytecode]
                                 [--history FOLDER]

For each workload staticgrad starts *cold*, with an empty cache of programs, *warm*, when an earlier process has
compiled the same, and *loaded*, without its compiler: an earlier process has exported the program, and building it is
to load that file. A peer always starts cold. NumPy is imported and the data are drawn before the clock starts. What
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
from typing import Any

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


def export(workload: str, path: str) -> None:
    """Write the program of a workload to a file."""
    from catalog import load
    from peers import Settings
    from peers.staticgrad_program import build

    loaded = load(workload, 0)
    executable: Any = build(loaded, Settings(1)).compile()
    executable(*loaded.feeds[0])
    executable.export(path, format="program")


def measure_loaded(workload: str, path: str) -> Times:
    """The seconds of each phase of an exported program, in this process."""
    from catalog import load

    feeds = load(workload, 0).feeds[0]
    started = time.perf_counter()
    import staticgrad

    imported = time.perf_counter()
    program = staticgrad.load(path)
    built = time.perf_counter()
    program(*feeds)
    called = time.perf_counter()
    if any(name.startswith(("staticgrad.compiler", "llvmlite")) for name in sys.modules):
        raise RuntimeError("a loaded program has imported the compiler")
    return dict(zip(PHASES, (imported - started, built - imported, called - built), strict=True))


class Processes:
    """Starts the measuring processes."""

    def __init__(self, folder: Path, threads: int, bytecode: bool) -> None:
        self._threads = threads
        self._cache, self._exported = folder / "cache", folder / "program"
        self._environment = {
            **os.environ,
            "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
            "PYTHONDONTWRITEBYTECODE": "" if bytecode else "1",
            "STATICGRAD_CACHE_DIR": str(self._cache),
        }

    def run(self, python: str, peer: str, workload: str) -> Times:
        return self._child(python, "--child", peer, workload, str(self._threads))

    def run_loaded(self, workload: str) -> Times:
        """The times of the program that ``export`` wrote."""
        return self._child(sys.executable, "--load", workload, str(self._exported))

    def export(self, workload: str) -> None:
        """Let a process write the program of a workload, which it compiles."""
        self._child(sys.executable, "--export", workload, str(self._exported))

    def _child(self, python: str, *arguments: str) -> Times:
        command = [python, __file__, *arguments]
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
    processes.export(workload)
    loaded = [processes.run_loaded(workload) for _ in range(runs + 1)][1:]
    found = [(f"staticgrad, {how}", least(runs)) for how, runs in (("cold", cold), ("warm", warm), ("loaded", loaded))]
    for peer, python in peers:
        processes.run(python, peer, workload)
        found.append((peer, least([processes.run(python, peer, workload) for _ in range(runs)])))
    return found


def main() -> None:
    import history  # here, as what the children import is measured

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", default="", help="names, comma-separated; default: all")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME:PYTHON", help="and an interpreter with it")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-bytecode", action="store_true")
    history.add_option(parser)
    arguments = parser.parse_args()

    from catalog import NAMED
    from peers import PEERS

    kept = history.opened(parser, arguments, "no_bytecode")
    found: dict[str, dict[str, float]] = {}
    names = arguments.workloads.split(",") if arguments.workloads else list(NAMED)
    peers = [tuple(peer.split(":", 1)) for peer in arguments.peer]
    print(f"{'workload':20} {'who':18} " + " ".join(f"{phase:>10}" for phase in (*PHASES, "together")))
    with tempfile.TemporaryDirectory() as folder:
        processes = Processes(Path(folder), arguments.threads, not arguments.no_bytecode)
        for name in names:
            for who, times in rows(processes, name, peers, arguments.runs):
                found.setdefault(name, {})[who] = 1e3 * sum(times.values())
                columns = [*(times[phase] for phase in PHASES), sum(times.values())]
                print(f"{name:20} {who:18} " + " ".join(f"{1e3 * t:10.1f}" for t in columns), flush=True)
    if kept is not None:
        packages = [PEERS[name].modules[0] for name, _ in peers]
        settings = {"runs": arguments.runs}
        kept.append(
            "startup", {"ms until the first answer": found}, packages, threads=arguments.threads, settings=settings
        )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--child", peer, workload, threads]:
            print(json.dumps(measure(peer, workload, int(threads))))
        case ["--load", workload, path]:
            print(json.dumps(measure_loaded(workload, path)))
        case ["--export", workload, path]:
            export(workload, path)
            print("{}")
        case _:
            main()
