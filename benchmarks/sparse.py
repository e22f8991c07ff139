"""Sparse second derivatives beside CasADi and asdex: the problems of ``sparse_problems.py`` as solvers evaluate them.

    python benchmarks/sparse.py [--problems NAMES] [--sizes 1000,10000] [--rounds N] [--seconds N] [--json FILE]
                                [--history FOLDER]

An evaluation is given x and a multiplier for each constraint, arrays of NumPy, and gives the elements of the Hessian of
the Lagrangian f + multipliers · g and of the Jacobian of g: by ``sg.sparse_hessian(…).lower()`` and
``sg.sparse_jacobian``; by a function of CasADi's scalar expressions (SX), called through its buffers; by
``asdex.hessian`` and ``asdex.jacobian`` in one function of ``jax.jit``. Products of the matrices with a vector must
agree before anything is timed.

Every system has one thread on one processor. A process for each problem has all of them, and they take turns.
Microseconds are of CPU, the least of the rounds. Set-up is CPU from the formula to the first result, with nothing kept
of earlier processes but what all programs of a system have in common. staticgrad answers by code that is made quickly;
a second figure counts the optimised code, too, by which evaluations are timed. Needs the extra ``bench``.
"""

from __future__ import annotations

import argparse
import compileall
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import history
import numpy as np
from figures import OURS, RATIO, TIE, geometric_mean, number, table
from from_jax import MACHINERY, ROOT, calls_in, cpu
from sparse_problems import CASADI, PROBLEMS, Problem

PEERS = ("casadi", "asdex")
ONE_THREAD = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1", "JAX_PLATFORMS": "cpu"}
EVALUATIONS, SET_UPS, MEANS = "µs of CPU of an evaluation", "seconds of CPU of a set-up", "geometric means of ratios"

Triplets = tuple[np.ndarray, np.ndarray, np.ndarray]  # values, rows, columns


@dataclass
class Built:
    """What evaluates a problem in one system.

    Attributes:
        call: an evaluation.
        matrices: what it gave: of a Hessian perhaps one triangle, and the Jacobian.
        has_triangle: whether it is one triangle.
        setup: seconds of CPU until the first result.
        ready: the same, and all that went on beside it.
        facts: numbers of elements and colours.
        kept: what has to live as long.
    """

    call: Callable[[], Any]
    matrices: Callable[[], list[Triplets]]
    has_triangle: bool
    setup: float
    ready: float
    facts: dict[str, int]
    kept: Any = None


def staticgrad(problem: Problem, x: np.ndarray, multipliers: np.ndarray) -> Built:
    import staticgrad as sg

    with sg.Graph() as graph:  # a program of three numbers, for which the compiler is imported
        z = sg.placeholder((3,), sg.float64)
        sg.Session(graph, num_threads=1).compile(sg.sparse_hessian(sg.sum(sg.sin(z) * z), z).values, z)(np.ones(3))
    start = time.process_time()
    with sg.Graph() as graph:
        at, by = sg.placeholder(x.shape, sg.float64), sg.placeholder(multipliers.shape, sg.float64)
        energy, parts = problem.objective(sg, at), []
        if problem.constraints is not None:
            limits = problem.constraints(sg, at)
            energy, parts = energy + sg.sum(by * limits), [sg.sparse_jacobian(limits, at)]
        parts.insert(0, sg.sparse_hessian(energy, at).lower())
    exe = sg.Session(graph, num_threads=1).compile([part.values for part in parts], [at, by])
    out = [np.empty(part.nnz) for part in parts]
    exe(x, multipliers, out=out)
    setup = time.process_time() - start
    exe.wait()
    ready = time.process_time() - start
    facts = {"hessian": parts[0].nnz, "jacobian": 0, "colors": sum(part.colors for part in parts)}
    if len(parts) > 1:
        facts["jacobian"] = parts[1].nnz
    places = [(values, part.rows, part.cols) for values, part in zip(out, parts, strict=True)]
    return Built(lambda: exe(x, multipliers, out=out), lambda: places, True, setup, ready, facts)


def casadi(problem: Problem, x: np.ndarray, multipliers: np.ndarray) -> Built:
    import casadi as ca

    start = time.process_time()
    at, by = ca.SX.sym("x", len(x)), ca.SX.sym("y", len(multipliers))
    energy, parts = problem.objective(CASADI, at), []
    if problem.constraints is not None:
        limits = problem.constraints(CASADI, at)
        energy, parts = energy + ca.dot(by, limits), [ca.jacobian(limits, at)]
    parts.insert(0, ca.triu(ca.hessian(energy, at)[0]))
    function = ca.Function("derivatives", [at, by], parts)
    buffer, evaluate = function.buffer()
    out = [np.zeros(function.nnz_out(k)) for k in range(len(parts))]
    for k, array in enumerate((x, multipliers)):
        buffer.set_arg(k, memoryview(array))
    for k, array in enumerate(out):
        buffer.set_res(k, memoryview(array))
    evaluate()
    setup = time.process_time() - start

    def matrices() -> list[Triplets]:
        places = [map(np.array, function.sparsity_out(k).get_triplet()) for k in range(len(parts))]
        return [(values, *place) for values, place in zip(out, places, strict=True)]

    return Built(evaluate, matrices, True, setup, setup, {}, buffer)


def asdex(problem: Problem, x: np.ndarray, multipliers: np.ndarray) -> Built:
    import asdex as ad
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    jax.block_until_ready(jax.jit(lambda z: jnp.sum(jnp.sin(z)))(np.ones(3)))  # what the first compilation prepares
    start = time.process_time()

    def limits(z: Any) -> Any:
        assert problem.constraints is not None
        return problem.constraints(jnp, z)

    def energy(z: Any, y: Any) -> Any:
        value = problem.objective(jnp, z)
        return value if problem.constraints is None else value + jnp.sum(y * limits(z))

    hessian = ad.hessian(energy, x, multipliers)
    jacobian = None if problem.constraints is None else ad.jacobian(limits, x)

    @jax.jit
    def derivatives(z: Any, y: Any) -> Any:
        return [hessian(z, y), *([jacobian(z)] if jacobian is not None else [])]

    found = jax.block_until_ready(derivatives(x, multipliers))
    setup = time.process_time() - start
    places = [(np.asarray(m.data), *np.asarray(m.indices).T) for m in found]
    return Built(
        lambda: jax.block_until_ready([m.data for m in derivatives(x, multipliers)]),
        lambda: places,
        False,
        setup,
        setup,
        {},
    )


SYSTEMS = {OURS: staticgrad, "casadi": casadi, "asdex": asdex}


def products(built: Built, x: np.ndarray) -> list[np.ndarray]:
    """Products of the matrices with a vector."""
    found = []
    for k, (values, rows, columns) in enumerate(built.matrices()):
        v = np.cos(np.arange(len(x)))
        y = np.bincount(rows, values * v[columns], minlength=len(x))
        if k == 0 and built.has_triangle:
            off = rows != columns
            y = y + np.bincount(columns[off], (values * v[rows])[off], minlength=len(x))
        found.append(y)
    return found


def measure(name: str, size: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Figures of one problem at one size, in this process."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    warnings.simplefilter("ignore")
    problem = PROBLEMS[name](size)
    rng = np.random.default_rng(0)
    x = problem.start + 1e-2 * rng.normal(size=problem.size)
    count = 1 if problem.constraints is None else len(problem.constraints(np, x))
    multipliers = rng.normal(size=count)
    row: dict[str, Any] = {"problem": name, "size": problem.size, "setup": {}, "us": {}, "failed": {}}
    built: dict[str, Built] = {}
    wanted: list[np.ndarray] | None = None
    for system, build in SYSTEMS.items():
        try:
            one = build(problem, x, multipliers)
            found = products(one, x)
            if wanted is None:
                wanted = found
            for y, z in zip(found, wanted, strict=True):
                np.testing.assert_allclose(y, z, rtol=1e-8, atol=1e-8 * max(1e-300, np.abs(z).max()))
        except Exception as error:
            row["failed"][system] = (str(error).strip().splitlines() or [type(error).__name__])[0][:100]
            continue
        built[system], row["setup"][system] = one, one.setup
    if OURS in built:
        row |= built[OURS].facts | {"ready": built[OURS].ready}
    counts = {system: max(1, calls_in(one.call, seconds / 4)) for system, one in built.items()}
    for _ in range(rounds):
        for system, one in built.items():
            row["us"][system] = min(row["us"].get(system, np.inf), cpu(one.call, counts[system]))
    return row


def best(row: dict[str, Any], of: str) -> float:
    """Our figure over that of the best peer."""
    return row[of][OURS] / min(row[of][peer] for peer in PEERS if peer in row[of])


def report(rows: list[dict[str, Any]]) -> str:
    """All figures as a table of Markdown, with the means that count."""
    header = ["problem", "n", "Hessian", "Jacobian", "colors", *(f"{s}, µs" for s in SYSTEMS), RATIO]
    header += [*(f"{s}, set-up s" for s in SYSTEMS), "optimised, s"]
    lines = []
    for row in rows:
        us, setup = ([number(row[of].get(s, np.nan)) for s in SYSTEMS] for of in ("us", "setup"))
        facts = [f"{row.get(fact, 0):,}" for fact in ("size", "hessian", "jacobian", "colors")]
        ratio = f"{best(row, 'us'):.2f}" if OURS in row["us"] and len(row["us"]) > 1 else "–"
        lines.append([row["problem"], *facts, *us, ratio, *setup, number(row.get("ready", np.nan))])
    parts = [table(header, lines)]
    for size, title in sized(rows).items():
        for peer, of, counted in ((p, of, title) for of in ("us", "setup") for p in PEERS):
            ratios = [r[of][OURS] / r[of][peer] for r in counted if OURS in r[of] and peer in r[of]]
            if ratios:
                faster, slower = sum(r < 1 / TIE for r in ratios), sum(r > TIE for r in ratios)
                what = "evaluations" if of == "us" else "set-up"
                parts.append(
                    f"{size}, {what}: of the time of {peer} {geometric_mean(ratios):.2f} in the geometric mean of"
                    f" {len(ratios)}, at most {max(ratios):.2f}; less on {faster}, level within {TIE - 1:.0%} on"
                    f" {len(ratios) - faster - slower}, more on {slower}."
                )
    parts += [f"{r['problem']}, {r['size']}: {s}: {said}" for r in rows for s, said in r["failed"].items()]
    return "\n\n".join(parts)


def sized(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows by the size that was asked for."""
    return {
        f"n = {size:,}": [r for r in rows if r["asked"] == size] for size in dict.fromkeys(r["asked"] for r in rows)
    }


def tables(rows: list[dict[str, Any]]) -> dict[str, history.Table]:
    """What the history keeps."""
    kept: dict[str, history.Table] = {MEANS: {}, EVALUATIONS: {}, SET_UPS: {}}
    for size, found in sized(rows).items():
        kept[MEANS][size] = {"problems": len(found)} | {
            f"{what} over {peer}'s": geometric_mean([r[of][OURS] / r[of][peer] for r in found if peer in r[of]])
            for of, what in (("us", "evaluation"), ("setup", "set-up"))
            for peer in PEERS
        }
        for row in found:
            kept[EVALUATIONS][f"{row['problem']}, {size}"] = row["us"] | {RATIO: best(row, "us")}
            kept[SET_UPS][f"{row['problem']}, {size}"] = row["setup"] | {"staticgrad, optimised": row["ready"]}
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", default="*", help="names, with * and ?, separated by commas")
    parser.add_argument("--sizes", default="1000,10000", help="about how many variables")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.1, help="of evaluations in a round")
    parser.add_argument("--json", help="a file for the figures")
    history.add_option(parser)
    parser.add_argument("--one", nargs=2, metavar=("NAME", "SIZE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one[0], int(given.one[1]), given.rounds, given.seconds)))
        return
    kept = history.opened(parser, given, "problems")
    names = [n for n in PROBLEMS if any(fnmatch.fnmatch(n, pattern) for pattern in given.problems.split(","))]
    rows = []
    for package in ("staticgrad", "compiler", "runtime"):  # as an installation has them
        compileall.compile_dir(ROOT / package, quiet=1)
    with tempfile.TemporaryDirectory() as machinery:
        environment = os.environ | ONE_THREAD | {"STATICGRAD_CACHE_DIR": machinery}
        subprocess.run([sys.executable, "-c", MACHINERY], env=environment, check=True)
        for size in map(int, given.sizes.split(",")):
            for name in names:
                with tempfile.TemporaryDirectory() as cache:
                    shutil.copytree(machinery, cache, dirs_exist_ok=True)
                    command = [sys.executable, __file__, "--one", name, str(size)]
                    command += ["--rounds", str(given.rounds), "--seconds", str(given.seconds)]
                    done = subprocess.run(
                        command,
                        env=environment | {"STATICGRAD_CACHE_DIR": cache},
                        capture_output=True,
                        text=True,
                        check=False,
                    )
                if done.returncode:
                    sys.exit(f"{name}, {size}: {done.stderr}")
                rows.append(json.loads(done.stdout.splitlines()[-1]) | {"asked": size})
                if given.json:
                    Path(given.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
                print(f"{name}, {size}: done", file=sys.stderr)
    print(report(rows))
    if any(row["failed"] for row in rows):
        print("some systems failed or gave other values", file=sys.stderr)
    if any(OURS in row["failed"] or len(row["us"]) < 2 for row in rows):
        sys.exit(1)
    if kept is not None:
        settings = {"rounds": given.rounds, "seconds": given.seconds}
        kept.append("sparse", tables(rows), ("casadi", "asdex", "jax"), settings=settings)


if __name__ == "__main__":
    main()
