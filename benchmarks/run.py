"""Measure staticgrad beside the peers that are installed, in one run.

    python benchmarks/run.py [--workload NAMES] [--peer NAMES] [--threads N] [--seed N] [--drawn N] [--rounds N]
                             [--python NAMES=INTERPRETER] [--isa native|avx2] [--out FOLDER] [--json FILE]
                             [--history FOLDER] [--no-warm] [--quick]

Goes out: tables in Markdown on standard output; with ``--out`` a folder with them, all that was measured as JSON and a
chart; with ``--json`` that file alone; with ``--history`` a record in the history, unless staticgrad failed. Exit
status 1 if an answer was wrong, a peer failed or staticgrad's bits depend on the threads. How it is measured is said in
``README.md`` beside this file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import history
from answers import missing
from catalog import NAMED, drawn_names
from chart import draw
from figures import number
from history import History
from peers import PEERS
from report import Results, as_json, as_markdown, tables_of, versions
from turns import HERE, OURS, Plan, environment, measure, pin, processors

from staticgrad.runtime.measured.machine import MeasuredMachine, from_json

COMPARED = ("numpy", "torch", "jax")  # in every record


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where results go, beside standard output."""

    folder: Path | None
    json: Path | None
    history: History | None = None


def say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


# -- arguments --------------------------------------------------------------------------------------------------------


def chosen(text: str | None, known: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Names between commas, in the order they are known; ``gemm_*`` stands for all that begin so."""
    if text is None:
        return known
    found: set[str] = set()
    for name in text.split(","):
        matching = [k for k in known if k == name or (name.endswith("*") and k.startswith(name[:-1]))]
        if not matching:
            raise SystemExit(f"{what} {name!r}: expected some of {', '.join(known)}")
        found.update(matching)
    return tuple(k for k in known if k in found)


def interpreters(given: list[str]) -> dict[str, str]:
    """By peer, from ``NAMES=INTERPRETER``."""
    found: dict[str, str] = {}
    for text in given:
        names, separator, python = text.partition("=")
        if not separator or not python:
            raise SystemExit(f"--python {text!r}: expected NAMES=INTERPRETER")
        found |= dict.fromkeys(chosen(names, tuple(PEERS), "--python"), python)
    return found


def available(asked: str | None, pythons: dict[str, str]) -> tuple[str, ...]:
    """The peers that are there; a line for each that is not."""
    found = []
    for peer in chosen(asked, tuple(PEERS), "--peer"):
        why = missing(peer, pythons.get(peer, sys.executable))
        if why is None:
            found.append(peer)
        else:
            say(f"{peer}: left out: {why}")
    return tuple(found)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("--workload", metavar="NAMES", help="some of: " + ", ".join(NAMED))
    add("--peer", metavar="NAMES", help="some of: " + ", ".join(PEERS))
    add("--threads", type=int, default=1, metavar="N")
    add("--seed", type=int, default=0, metavar="N", help="of the data, and of what is drawn")
    add("--drawn", type=int, default=0, metavar="N", help="so many workloads drawn by the seed, with or instead")
    add("--rounds", type=int, default=5, metavar="N", help="turns of each peer")
    add("--python", action="append", default=[], metavar="NAMES=INTERPRETER", help="another interpreter for some peers")
    add("--out", type=Path, metavar="FOLDER", help="figures.md, figures.json and figures.svg go there")
    add("--json", type=Path, metavar="FILE", help="write everything that was measured there")
    add("--isa", choices=("native", "avx2"), default="", help="all that the processor has, or AVX2, for every peer; "
        "default: as the environment says")  # fmt: skip
    history.add_option(made)
    add("--no-warm", action="store_true", help="leave out the first call of a second process with filled caches")
    add("--quick", action="store_true", help="two short turns, no warm caches: whether all is well, not how fast it is")
    return made


def parse(arguments: list[str]) -> tuple[Plan, Outputs]:
    made = parser()
    given = made.parse_args(arguments)
    most = len(processors(given.threads)) if hasattr(os, "sched_getaffinity") else given.threads
    if not 1 <= given.threads <= most:
        raise SystemExit(f"--threads {given.threads}: expected 1 to the number of processors")
    if given.rounds < 1 or given.drawn < 0 or given.seed < 0:
        raise SystemExit("--rounds: expected at least 1; --drawn and --seed: at least 0")
    names = () if given.drawn and given.workload is None else chosen(given.workload, tuple(NAMED), "--workload")
    pythons = interpreters(given.python)
    plan = Plan(
        (*names, *drawn_names(given.drawn)), available(given.peer, pythons), given.threads, given.seed,
        rounds=2 if given.quick else given.rounds, seconds=0.1 if given.quick else 0.4,
        warm=not (given.quick or given.no_warm), pythons=pythons, isa=given.isa,
    )  # fmt: skip
    if given.history is not None and not given.isa:
        made.error("--history: expected --isa, which says what the record is of")
    kept = history.opened(made, given, "quick", "drawn", "workload", "seed")
    if kept is not None and (absent := {OURS, *COMPARED} - {*plan.peers}):
        made.error(f"--history: expected {', '.join(sorted(absent))} among the peers")
    return plan, Outputs(given.out, given.json, kept)


# -- the command ------------------------------------------------------------------------------------------------------


def measured_machine(plan: Plan) -> MeasuredMachine:
    """In a process pinned like those of the peers."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        process = subprocess.Popen(
            [plan.python(OURS), "-m", "staticgrad.runtime.measured.machine", str(plan.threads)],
            cwd=HERE, text=True, stdout=subprocess.PIPE,
            env=environment(plan.threads, Path(folder), plan.isa),
        )  # fmt: skip
        pin(process.pid, plan.threads)
        text, _ = process.communicate()
    if process.returncode:
        raise SystemExit("the machine's peaks could not be measured; the lines above say why")
    return from_json(json.loads(text))


def write(results: Results, outputs: Outputs) -> None:
    text = json.dumps(as_json(results), indent=1) + "\n"
    if outputs.json is not None:
        outputs.json.write_text(text, encoding="utf-8")
    if outputs.folder is None:
        return
    outputs.folder.mkdir(parents=True, exist_ok=True)
    (outputs.folder / "figures.json").write_text(text, encoding="utf-8")
    (outputs.folder / "figures.md").write_text(as_markdown(results), encoding="utf-8")
    try:
        draw(results, outputs.folder / "figures.svg")
    except ImportError:
        say("no chart: matplotlib is not installed (pip install matplotlib)")


def main(arguments: list[str]) -> int:
    plan, outputs = parse(arguments)
    results = Results(plan, measured_machine(plan), {})
    for name in plan.workloads:
        say(name, end="")
        results.rows[name] = measure(plan, name)
        for row in results.rows[name]:
            say(f"  {row.peer} {row.error or number(row.median_us) + ' µs'}", end="")
        say("")
        write(results, Outputs(outputs.folder, None))  # what there is, should the run be broken off
    print(as_markdown(results))
    write(results, outputs)
    failed = {row.peer for rows in results.rows.values() for row in rows if row.error}
    if outputs.history is not None and OURS not in failed:
        settings = {"rounds": plan.rounds, "seconds": plan.seconds}
        outputs.history.append(
            "run", tables_of(results), isa=plan.isa, threads=plan.threads, versions=versions(results), settings=settings
        )
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
