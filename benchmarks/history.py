"""The history of figures: what a benchmark measured, on which machine, of which commit.

``history/`` has a file for each machine, named by its processor and instruction set, with a record of JSON on each
line. Commands append with ``--history``; nobody edits the files. ``figures.py`` renders what pages show of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "history"
MEASURED = ("staticgrad", "compiler", "runtime", "benchmarks", ":!benchmarks/history")  # what figures depend on
ISAS = {"avx512": "AVX-512", "avx2": "AVX2", "neon": "NEON", "generic": "a generic vector width"}  # the widest first

Table = dict[str, dict[str, float]]  # a number by row and column


@dataclass(frozen=True, slots=True)
class Record:
    """One run of one benchmark.

    ``commit``, ``clean``: what was measured, and whether its files were those of the commit; None where that is not
    known. ``date``: of the run, in UTC. ``machine``: ``processor``, ``isa``, ``cores`` and ``caches`` (bytes by name),
    the last two None where unknown. ``isa``: what all systems were held to. ``threads``: of each system, None where
    unknown. ``figures``: tables by title. ``settings``: rounds and seconds. ``imported``: where the figures stood, if
    they are older than the history.
    """

    benchmark: str
    commit: str
    clean: bool | None
    date: str
    machine: dict[str, Any]
    isa: str
    threads: int | None
    figures: dict[str, Table]
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, float] = field(default_factory=dict)
    imported: str = ""

    def __post_init__(self) -> None:
        if missing := {"processor", "isa", "cores", "caches"} - self.machine.keys():
            raise ValueError(f"machine lacks {', '.join(sorted(missing))}")
        if not re.fullmatch(r"[0-9a-f]{40}", self.commit):
            raise ValueError(f"commit {self.commit!r}: expected 40 hexadecimal digits")
        datetime.fromisoformat(self.date)
        numbers = [x for table in self.figures.values() for row in table.values() for x in row.values()]
        if not numbers or not all(isinstance(x, int | float) and x == x for x in numbers):
            raise ValueError("figures: expected numbers by title, row and column")

    @property
    def host(self) -> str:
        """The machine's name in prose."""
        return f"{self.machine['processor']} ({ISAS.get(self.machine['isa'], self.machine['isa'])})"

    @property
    def series(self) -> str:
        """What records that continue each other have in common, in prose."""
        held = "" if self.isa == self.machine["isa"] else f", held to {ISAS[self.isa]}"
        threads = {None: "", 1: ", one thread"}.get(self.threads, f", {self.threads} threads")
        return f"{self.host}{held}{threads}"


# -- reading ----------------------------------------------------------------------------------------------------------


def load(folder: Path = FOLDER) -> list[Record]:
    """All records, the oldest first.

    Raises:
        ValueError: a line is no record; the message names the file and the line.
    """
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                found.append(Record(**json.loads(line)))
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path}:{number}: {error}") from error
    return sorted(found, key=lambda record: record.date)


def newest(
    records: Iterable[Record], benchmark: str, isa: str | None = None, threads: int | None = None
) -> Record | None:
    """The last record of a benchmark, of those with this instruction set and number of threads if they are given."""
    wanted = {"benchmark": benchmark, "isa": isa, "threads": threads}
    return max(
        (r for r in records if all(value in (None, getattr(r, name)) for name, value in wanted.items())),
        key=lambda record: record.date,
        default=None,
    )


# -- writing ----------------------------------------------------------------------------------------------------------


class History:
    """Appends records of what is measured from now on."""

    def __init__(self, folder: Path = FOLDER) -> None:
        """Note the commit, which may change while something runs.

        Raises:
            SystemExit: the benchmarks lie in no checkout.
        """
        self._folder = folder
        self._commit = _git("rev-parse", "HEAD")
        self._clean = not _git("status", "--porcelain", "--", *MEASURED)

    def append(
        self, benchmark: str, figures: Mapping[str, Table], packages: Iterable[str] = (), *, isa: str = "native",
        threads: int = 1, versions: Mapping[str, str] | None = None, settings: Mapping[str, float] | None = None,
    ) -> Record:  # fmt: skip
        """Write a record behind those of this machine.

        Args:
            benchmark: the script's name, without its suffix.
            figures: tables by title; empty ones and numbers that are missing are left out.
            packages: of the peers; their versions are those of this interpreter.
            isa: ``"native"``, or what all systems were held to.
            threads: of each system.
            versions: of peers in other interpreters.
            settings: rounds and seconds.
        """
        found = machine()
        tables = {
            title: rows
            for title, table in figures.items()
            if (rows := {name: {k: _short(x) for k, x in row.items() if x == x} for name, row in table.items()})
        }
        record = Record(
            benchmark, self._commit, self._clean, datetime.now(UTC).isoformat(timespec="seconds"), found,
            found["isa"] if isa == "native" else isa, threads, tables,
            {name: metadata.version(name) for name in packages} | dict(versions or {}), dict(settings or {}),
        )  # fmt: skip
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / file_name(found)).open("a", encoding="utf-8") as file:
            file.write(line_of(record))
        return record


def line_of(record: Record) -> str:
    """A record as a line of a file."""
    fields = {key: value for key, value in dataclasses.asdict(record).items() if value not in ("", {})}
    return json.dumps(fields, ensure_ascii=False, allow_nan=False) + "\n"


def file_name(machine: Mapping[str, Any]) -> str:
    words = re.findall(r"[a-z0-9]+", f"{machine['processor']} {machine['isa']}".lower())
    return "-".join(words) + ".jsonl"


def machine() -> dict[str, Any]:
    """This machine, as records have it."""
    from staticgrad.compiler.machine.target import TARGETS, processor, runs_here

    caches = {}
    for place in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (place.joinpath(name).read_text().strip() for name in ("level", "type", "size"))
        caches[f"L{level}{'' if kind == 'Unified' else kind[0].lower()}"] = int(size.rstrip("K")) * 1024
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    isa = next(target.name for target in TARGETS.values() if runs_here(target))  # TARGETS has the widest first
    return {"processor": processor() or "unknown", "isa": isa, "cores": cores, "caches": caches}


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--history", type=Path, metavar="FOLDER", help="append what was measured to the history there")


def opened(parser: argparse.ArgumentParser, given: argparse.Namespace, *choosing: str) -> History | None:
    """The history that was asked for; an error of usage if one of the options ``choosing`` leaves something out."""
    if given.history is None:
        return None
    for name in choosing:
        if getattr(given, name) != parser.get_default(name):
            parser.error(f"--history: expected everything to be measured, not --{name.replace('_', '-')}")
    return History(given.history)


def _short(number: float) -> float:
    """Four digits, which is more than a machine repeats."""
    return float(f"{number:.4g}") if isinstance(number, float) else number


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=HERE.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"--history: expected a checkout with git: {done.stderr.strip()}")
    return done.stdout.strip()
