"""The peers on one workload: a process each, pinned alike, their answers checked, then measured in turn.

Comes in: a ``Plan`` and the name of a workload. Goes out: a ``Row`` for each peer that covers it. While one works the
others wait, so that what else the machine does meets all of them; a ratio is the median over the rounds of the ratios
within a round. Each process begins with empty caches; when it has been measured, a second one with the caches that the
first left says how long the first call takes then.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from answers import Answers, mismatch, reference_peer
from catalog import load
from instruction_sets import environment as held
from peers import PEERS
from workloads import Workload

HERE = Path(__file__).resolve().parent
OURS = "staticgrad"
POOLS = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run was asked to do. ``peers``: those that can be measured; ``pythons``: interpreters other than this one;
    ``seconds``: of each peer's turn; ``patience``: seconds until a peer has to have answered; ``isa``: of all peers, as
    ``instruction_sets.py`` has it."""

    workloads: tuple[str, ...]
    peers: tuple[str, ...]
    threads: int = 1
    seed: int = 0
    rounds: int = 5
    seconds: float = 0.4
    warm: bool = True
    patience: float = 300.0
    pythons: dict[str, str] = field(default_factory=dict)
    isa: str = ""

    def python(self, peer: str) -> str:
        return self.pythons.get(peer, sys.executable)


@dataclass(slots=True)
class Row:
    """What was measured of one peer on one workload. ``bits``: of the answers, for staticgrad whether another number of
    threads gives the same; ``temporary_bytes`` is negative where a peer does not tell."""

    workload: str
    peer: str
    version: str = ""
    error: str = ""
    checked: bool = False
    import_s: float = math.nan
    build_s: float = math.nan
    first_call_s: float = math.nan
    warm_first_call_s: float = math.nan
    imported_mb: float = math.nan
    peak_mb: float = math.nan
    temporary_bytes: int = -1
    bits: str = ""
    same_bits: bool | None = None
    rounds_us: list[float] = field(default_factory=list)  # median call of each round
    least_us: float = math.nan
    ratio: float = math.nan  # staticgrad's time over this peer's

    @property
    def median_us(self) -> float:
        return statistics.median(self.rounds_us) if self.rounds_us else math.nan


# -- processes --------------------------------------------------------------------------------------------------------


def environment(threads: int, caches: Path, isa: str) -> dict[str, str]:
    """Pools of one size, one instruction set, no accelerators, and what peers keep of compilations in ``caches``."""
    kept = {
        "STATICGRAD_CACHE": "1",
        "STATICGRAD_CACHE_DIR": str(caches / "staticgrad"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "JAX_COMPILATION_CACHE_DIR": str(caches / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "PYTENSOR_FLAGS": f"base_compiledir={caches / 'pytensor'}",
        "NUMBA_CACHE_DIR": str(caches / "numba"),
    }
    quiet = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return held(isa, os.environ) | dict.fromkeys(POOLS, str(threads)) | kept | quiet


def processors(threads: int) -> set[int]:
    """The last of those that this process may use: the first ones serve most interrupts."""
    return set(sorted(os.sched_getaffinity(0))[-threads:])


def pin(process: int, threads: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(process, processors(threads))


class Process:
    """A process that measures one peer on one workload; see ``measure.py``. Raises ``RuntimeError`` with its last words
    when it ends early."""

    def __init__(
        self, plan: Plan, peer: str, workload: str, caches: Path, *, double: bool = False, threads: int | None = None
    ) -> None:
        self.threads = threads or plan.threads
        self.patience = plan.patience
        command = [plan.python(peer), "measure.py", peer, workload, str(self.threads), str(plan.seed)]
        self.process = subprocess.Popen(
            [*command, *(["--double"] if double else [])], cwd=HERE, text=True,
            env=environment(self.threads, caches, plan.isa),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        pin(self.process.pid, self.threads)
        # what it says on stderr is read along, or a full pipe would stop it
        self._errors: list[str] = []
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()
        try:
            self.started: dict[str, Any] = self._reply()
        except RuntimeError:
            self.end()
            raise

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self._errors.extend(line.strip() for line in self.process.stderr if line.strip())

    def _reply(self) -> Any:
        assert self.process.stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self.process.kill()

        timer = threading.Timer(self.patience, give_up)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        if line:
            return json.loads(line)
        self.process.wait()
        self._reader.join(1)
        if late.is_set():
            raise RuntimeError(f"no answer within {self.patience:.0f} s")
        raise RuntimeError(self._errors[-1] if self._errors else f"exit status {self.process.returncode}")

    def ask(self, request: str) -> Any:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # then the reply says why
            print(request, file=self.process.stdin, flush=True)
        return self._reply()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


# -- one workload -----------------------------------------------------------------------------------------------------


def measure(plan: Plan, name: str) -> list[Row]:
    """All peers that cover the workload."""
    workload = load(name, plan.seed)
    rows = {peer: Row(name, peer) for peer in plan.peers if PEERS[peer].covers(workload)}
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        place = Path(folder)
        expected = _reference(plan, workload, place)
        running: dict[str, Process] = {}
        try:
            for peer, row in rows.items():
                process = _start(plan, row, place / peer)
                if process is not None:
                    running[peer] = process
                    expected = _check(row, process, workload, expected)
            _take_turns(plan, {peer: p for peer, p in running.items() if not rows[peer].error}, rows)
        finally:
            for process in running.values():
                process.end()
        for peer, row in rows.items():
            if plan.warm and not row.error:
                row.warm_first_call_s = _fresh(plan, peer, name, place / peer)["first_call_s"]
        if OURS in rows and not rows[OURS].error:
            _compare_bits(plan, rows[OURS], place / OURS)
    return list(rows.values())


def _reference(plan: Plan, workload: Workload, place: Path) -> Answers | None:
    peer = reference_peer(workload, plan.peers)
    if peer is None:
        return None
    process = Process(plan, peer, workload.name, place / "reference", double=True)
    process.end()
    answers: Answers = process.started["answers"]
    return answers


def _start(plan: Plan, row: Row, caches: Path) -> Process | None:
    try:
        return Process(plan, row.peer, row.workload, caches)
    except RuntimeError as error:
        row.error = str(error)
        return None


def _check(row: Row, process: Process, workload: Workload, expected: Answers | None) -> Answers | None:
    """Notes what the process has told. Gives what the next answer is compared with."""
    started = dict(process.started)
    answers: Answers = started.pop("answers")
    for key, value in started.items():
        setattr(row, key, value)
    if expected is None:
        return answers
    row.error = mismatch(answers, expected, workload.tolerance) or ""
    row.checked = not row.error
    return expected


def _take_turns(plan: Plan, running: dict[str, Process], rows: dict[str, Row]) -> None:
    least: dict[str, list[float]] = {peer: [] for peer in running}
    for _ in range(plan.rounds):
        for peer, process in running.items():
            times = process.ask(f"time {plan.seconds}")
            rows[peer].rounds_us.append(statistics.median(times) * 1e6)
            least[peer].append(min(times) * 1e6)
    for peer, process in running.items():
        row = rows[peer]
        row.least_us = min(least[peer])
        for key, value in process.ask("memory").items():
            setattr(row, key, value)
        if OURS in running:
            pairs = zip(rows[OURS].rounds_us, row.rounds_us, strict=True)
            row.ratio = statistics.median(ours / theirs for ours, theirs in pairs)


def _fresh(plan: Plan, peer: str, workload: str, caches: Path, threads: int | None = None) -> dict[str, Any]:
    process = Process(plan, peer, workload, caches, threads=threads)
    process.end()
    return process.started


def _compare_bits(plan: Plan, row: Row, caches: Path) -> None:
    """The same answer to the last bit with one thread and with two."""
    other = 2 if plan.threads == 1 else 1
    if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) < other:
        return
    row.same_bits = _fresh(plan, row.peer, row.workload, caches, other)["bits"] == row.bits
    if not row.same_bits:
        row.error = f"other bits with {other} threads than with {plan.threads}"
