"""Measure PyMC models as nutpie samples them: compiled by staticgrad, by numba and by JAX.

    python benchmarks/samplers.py [--model NAMES] [--backend NAMES] [--rounds N] [--seconds S] [--draws N] [--json FILE]
                                  [--history FOLDER]

The models are the ten of ``tests/support/pymc_models.py``, with data from a seed. Each backend has a process of its own
with empty caches: CPU seconds of the compilation until logp, gradient and a draw's expansion have been computed once,
imports not counted; value and gradient at ten points, which must agree within 1e-9 before anything is timed; then, in
turns, microseconds of a gradient, the least of each turn: of C functions in a loop in C, of JAX from Python, which is
how nutpie calls it. With ``--draws`` each backend samples two chains as well; the CPU seconds are told, and how far
means and standard deviations lie apart, in Monte Carlo errors. Goes out: a table in Markdown. It needs
``pip install '.[pymc]' numba jax`` in a checkout and a C compiler.
"""

from __future__ import annotations

import argparse
import ctypes
import fnmatch
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import history
import numpy as np

HERE = Path(__file__).resolve().parent
OURS = "staticgrad"
BACKENDS = (OURS, "numba", "jax")
TOLERANCE = 1e-9  # JAX's logp of ``correlated`` is 1e-10 from that of the others
POINTS = 10
LOOP = """
#include <stddef.h>
typedef int (*density)(size_t, const double *, double *, double *, void *);
int repeat(density f, size_t n, const double *x, double *grad, double *value, void *user, long calls) {
    int status = 0;
    for (long i = 0; i < calls; i++) status |= f(n, x + n * (i % %d), grad, value, user);
    return status;
}
""".replace("%d", str(POINTS))  # fmt: skip


# -- one backend, in a process of its own -----------------------------------------------------------------------------


def serve(model_name: str, backend: str, library: str) -> None:
    """Compile; then answer the requests on standard input, a line of JSON each."""
    replies, sys.stdout = sys.stdout, sys.stderr
    import nutpie

    import staticgrad.pymc

    sys.path.insert(0, str(HERE.parent / "tests"))
    from support.pymc_models import MODELS, places, points

    if backend == "jax":
        import jax

        jax.config.update("jax_enable_x64", True)

    def reply(value: Any) -> None:
        print(json.dumps(value), file=replies, flush=True)

    model = MODELS[model_name]()
    at = points(model, POINTS)
    start = time.process_time()
    if backend == OURS:
        compiled = staticgrad.pymc.compile(model)
    else:
        compiled = nutpie.compile_pymc_model(model, backend=backend)
    nutpie_model = compiled._for_nutpie() if backend == OURS else compiled
    names = [v.name for v in compiled._variables] if backend == "jax" else list(compiled.shapes)
    order = places(model, names)
    at = np.ascontiguousarray(at[:, order])
    results = np.zeros((POINTS, 1 + at.shape[1]))

    if backend == "jax":
        density = compiled._make_logp_func()
        expand = compiled._make_expand_func(0, 0, 0)
        data = compiled._shared_data

        def call(calls: int) -> None:
            for i in range(calls):
                density(at[i % POINTS], **data)

        expand(at[0], **data)
        for row, x in zip(results, at, strict=True):
            row[0], row[1:] = density(x, **data)
    else:
        function = ctypes.CDLL(library).repeat
        function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_void_p] * 4, ctypes.c_long]
        address, user = nutpie_model.compiled_logp_func.address, nutpie_model.user_data.ctypes.data
        n, grad, value = at.shape[1], np.zeros(at.shape[1]), np.zeros(1)

        def call(calls: int) -> None:
            function(address, n, at.ctypes.data, grad.ctypes.data, value.ctypes.data, user, calls)

        for row, x in zip(results, at, strict=True):
            function(address, n, x.ctypes.data, row[1:].ctypes.data, row[:1].ctypes.data, user, 1)
    took = time.process_time() - start
    results[:, 1:] = results[:, 1 + np.argsort(order)]
    reply({"compile": took, "results": results.tolist()})
    calls = 1
    for line in sys.stdin:
        match line.split():
            case ["time", seconds]:
                times, end = [], time.perf_counter() + float(seconds)
                while time.perf_counter() < end or len(times) < 3:
                    begun = time.perf_counter()
                    call(calls)
                    took = time.perf_counter() - begun
                    times.append(took / calls)
                    if took < 2e-3:
                        calls *= 2
                        times.clear()
                reply(min(times))
            case ["sample", draws]:
                reply(sampled(nutpie, compiled, int(draws)))


def sampled(nutpie: Any, compiled: Any, draws: int) -> dict[str, Any]:
    """Means and standard deviations of what is in the trace, with their Monte Carlo errors, and the CPU seconds."""
    from support.pymc_models import moments

    start = time.process_time()
    trace = nutpie.sample(compiled, draws=draws, tune=draws, chains=2, seed=1, progress_bar=False)
    took = time.process_time() - start
    found = {what: (value.tolist(), error.tolist()) for what, (value, error) in moments(trace).items()}
    return {"seconds": took, "moments": found}


# -- all of them ------------------------------------------------------------------------------------------------------


class Peer:
    """The process of a backend on a model."""

    def __init__(self, model: str, backend: str, library: str, caches: str) -> None:
        self.backend = backend
        environment = os.environ | {
            "STATICGRAD_CACHE": "0", "PYTENSOR_FLAGS": f"base_compiledir={caches}", "JAX_PLATFORMS": "cpu",
            "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent),
        }  # fmt: skip
        command = [sys.executable, "-W", "ignore", __file__, "--serve", model, backend, library]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.times: list[float] = []
        started = self._answer()
        self.compile_s: float = started["compile"]
        self.results = np.array(started["results"])

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate()
            raise RuntimeError(f"{self.backend} ended: {errors.strip().splitlines()[-1:]}")
        return json.loads(line)

    def ask(self, request: str) -> Any:
        assert self.process.stdin is not None
        print(request, file=self.process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        self.process.communicate()


def farthest(a: dict[str, Any], b: dict[str, Any]) -> float:
    """The largest difference of the means and standard deviations of two samplings, in Monte Carlo errors of it."""
    worst = 0.0
    for what, (value, error) in a["moments"].items():
        other, its_error = b["moments"][what]
        allowed = np.hypot(error, its_error) + 1e-12  # what does not vary has none
        worst = max(worst, float(np.max(np.abs(np.subtract(value, other)) / allowed)))
    return worst


def measure(model: str, given: argparse.Namespace, library: str) -> list[dict[str, Any]]:
    """A row for each backend on a model."""
    peers: list[Peer] = []
    rows: list[dict[str, Any]] = []
    for backend in given.backend:
        with tempfile.TemporaryDirectory() as caches:
            try:
                peers.append(Peer(model, backend, library, caches))
            except RuntimeError as error:
                rows.append({"model": model, "backend": backend, "error": str(error)})
    base = peers[0]
    for peer in peers[1:]:
        scale = np.maximum(np.abs(base.results[:, :1]), 1), np.max(np.abs(base.results[:, 1:]), 1, keepdims=True)
        apart = [np.abs(base.results[:, a] - peer.results[:, a]) / s for a, s in zip((slice(1), slice(1, None)), scale)]
        if not max(map(np.max, apart)) < TOLERANCE:
            raise SystemExit(f"{model}: {peer.backend} and {base.backend} differ by {list(map(np.max, apart))}")
    for _ in range(given.rounds):
        for peer in peers:
            peer.times.append(peer.ask(f"time {given.seconds}"))
    traces = [peer.ask(f"sample {given.draws}") if given.draws else None for peer in peers]
    for peer, trace in zip(peers, traces, strict=True):
        row = {
            "model": model, "backend": peer.backend, "compile": peer.compile_s,
            "compile_ratio": peer.compile_s / base.compile_s, "seconds": statistics.median(peer.times),
            "ratio": statistics.median(a / b for a, b in zip(peer.times, base.times, strict=True)),
        }  # fmt: skip
        if trace is not None and traces[0] is not None:
            row |= {"sampling": trace["seconds"], "errors": 0.0 if peer is base else farthest(traces[0], trace)}
        rows.append(row)
        peer.close()
    return rows


def tables(rows: list[dict[str, Any]]) -> dict[str, history.Table]:
    """What the history keeps: times of gradients and compilations by model."""
    kept: dict[str, history.Table] = {"µs of a gradient": {}, "seconds of CPU of a compilation": {}}
    for row in rows:
        for title, number in zip(kept, (row["seconds"] * 1e6, row["compile"]), strict=True):
            kept[title].setdefault(row["model"], {})[row["backend"]] = number
    return kept


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--model", type=split, default=["*"], metavar="NAMES")
    parser.add_argument("--backend", type=split, default=list(BACKENDS), metavar="NAMES", help="the first is the base")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each turn")
    parser.add_argument("--draws", type=int, default=0, help="that are sampled, after as many to tune; default: none")
    parser.add_argument("--json", type=Path, metavar="FILE")
    history.add_option(parser)
    given = parser.parse_args()
    kept = history.opened(parser, given, "model", "backend")
    sys.path.insert(0, str(HERE.parent / "tests"))
    from support.pymc_models import MODELS

    print(f"| model | backend | compile, CPU s | of {given.backend[0]}'s | µs a gradient | of {given.backend[0]}'s |"
          + (" sampling, CPU s | farthest, MC errors |" if given.draws else ""))  # fmt: skip
    print("|---|---|---:|---:|---:|---:|" + ("---:|---:|" if given.draws else ""))
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "loop.c"), str(Path(folder, "loop.so"))
        source.write_text(LOOP)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(source), "-o", library], check=True)
        for model in MODELS:
            if not any(fnmatch.fnmatch(model, pattern) for pattern in given.model):
                continue
            for row in measure(model, given, library):
                found.append(row)
                if "error" in row:
                    print(f"| {model} | {row['backend']} | {row['error']} |", flush=True)
                    continue
                line = f"| {model} | {row['backend']} | {row['compile']:.2f} | {row['compile_ratio']:.1f} |"
                line += f" {row['seconds'] * 1e6:.2f} | {row['ratio']:.2f} |"
                if given.draws:
                    line += f" {row['sampling']:.2f} | {row['errors']:.1f} |"
                print(line, flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1))
    if kept is not None and not any("error" in row for row in found):
        settings = {"rounds": given.rounds, "seconds": given.seconds}
        kept.append("samplers", tables(found), ("pymc", "nutpie", "numba", "jax"), settings=settings)


if __name__ == "__main__":
    main()
