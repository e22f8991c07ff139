"""A book of swaptions under the LIBOR market model, with 160 sensitivities: microseconds a path beside NumPy and JAX.

    python benchmarks/libor.py [--paths 8,16,32,64,128,256] [--forms unrolled,scan] [--systems staticgrad,numpy,jax]
                               [--rounds 3] [--seconds 0.5] [--phases]

`STATICGRAD_TARGET=avx2` holds staticgrad to AVX2.

The book is that of Giles and Glasserman, Smoking adjoints (Risk, 2006): 80 forward rates of a quarter of a year each
follow 40 steps, then 15 swaptions with maturities from 4 to 40 and three strikes are priced and discounted. The price
is the mean over a block of paths, the sensitivities are those by all 80 initial rates and all 80 volatilities, in
float64. Paths lie innermost, so that the lanes of a vector are paths; a million paths are many calls with one block.

``unrolled`` declares each step with the rates that are still alive, ``scan`` one step with masks. NumPy computes the
price alone, in place; JAX has ``jax.jit`` of the unrolled price and of its ``value_and_grad``, on one thread.

Each system and form has a process of its own, and they take turns: the least time of all rounds is told, by the clock
of the thread that calls (JAX: of the process), so that other work on the machine counts little. ``ratio`` is price and
sensitivities over the price. Set-up is the CPU time of the process from the declaration to the optimised programs, both
of them; ``--phases`` tells what it consists of. Before anything is timed, the price is compared with NumPy's and a
sensitivity with differences.

The floor, counted in the code that is made for AVX2 and a processor with two ports for products (Zen 3 and 4). A path
computes 2,380 elements, 595 vectors. The price takes of each 26 instructions on these ports, 20 of them of the
exponential, and one division, which holds a unit of its own for 5 cycles: 13 cycles, 7,700 for a path, 2.1 us at
3.6 GHz. The derivative takes about 20, and another division: 10 cycles, 1.6 us. Of each element it reads 4 numbers that
the price has left and writes 1: 76 KB a path that come from the second cache where 8 to 12 paths are in a block, which
has 1 MiB there, and mostly from the third where there are more.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
RATES, STEPS, QUARTER = 80, 40, 0.25
MATURITIES = np.repeat([4, 8, 20, 28, 40], 3)
STRIKES = np.tile([0.045, 0.05, 0.055], 5)
NOTIONAL = 100.0


# -- the book ---------------------------------------------------------------------------------------------------------


def payoff(lib: Any, rates: Any) -> Any:
    """The discounted payoff of each path, of the rates after the last step, by the functions of a library."""
    bonds = lib.cumulative_prod(1 / (1 + QUARTER * rates[STEPS:]), axis=0)
    annuities = lib.cumulative_sum(QUARTER * bonds, axis=0)
    last = MATURITIES - 1
    swaps = lib.take(bonds, last, axis=0) + STRIKES[:, None] * lib.take(annuities, last, axis=0) - 1
    value = (-NOTIONAL * lib.minimum(swaps, 0.0)).sum(axis=0)
    return value / lib.prod(1 + QUARTER * rates[:STEPS], axis=0)


def unrolled(lib: Any, start: Any, volatilities: Any, draws: Any) -> Any:
    """The mean price over the columns of ``draws``: a step declares the rates that have not been fixed yet."""
    rates = lib.broadcast_to(start[:, None], (RATES, draws.shape[1]))
    for step in range(STEPS):
        alive, vol = rates[step + 1 :], volatilities[: RATES - step - 1, None]
        covariance = QUARTER * vol
        drift = lib.cumulative_sum(covariance * alive / (1 + QUARTER * alive), axis=0)
        noise = QUARTER**0.5 * draws[step] - 0.5 * covariance
        alive = alive * lib.exp(covariance * drift + vol * noise)
        rates = lib.concat([rates[: step + 1], alive], axis=0)
    return payoff(lib, rates).mean()


def scanned(lib: Any, start: Any, volatilities: Any, draws: Any) -> Any:
    """The same by a loop of the program: the volatility of a rate that has been fixed is zero."""
    which = np.arange(RATES)[None, :] - np.arange(STEPS)[:, None] - 1
    alive = (which >= 0).astype(np.float64)

    def step(rates: Any, now: Any) -> tuple[Any, None]:
        draw, places, is_alive = now
        vol = (lib.take(volatilities, places, axis=0) * is_alive)[:, None]
        covariance = QUARTER * vol
        drift = lib.cumulative_sum(covariance * rates / (1 + QUARTER * rates), axis=0)
        return rates * lib.exp(covariance * drift + vol * (QUARTER**0.5 * draw - 0.5 * covariance)), None

    first = lib.broadcast_to(start[:, None], (RATES, draws.shape[1]))
    rates, _ = lib.scan(step, first, (draws, np.maximum(which, 0), alive))
    return payoff(lib, rates).mean()


def by_numpy(start: Array, volatilities: Array, draws: Array) -> float:
    """The mean price, with every step in place."""
    rates = np.repeat(start[:, None], draws.shape[1], 1)
    for step in range(STEPS):
        alive, vol = rates[step + 1 :], volatilities[: RATES - step - 1, None]
        covariance = QUARTER * vol
        drift = np.cumsum(covariance * alive / (1 + QUARTER * alive), 0)
        alive *= np.exp(covariance * drift + vol * (QUARTER**0.5 * draws[step] - 0.5 * covariance))
    bonds = np.cumprod(1 / (1 + QUARTER * rates[STEPS:]), 0)
    annuities = np.cumsum(QUARTER * bonds, 0)
    swaps = bonds[MATURITIES - 1] + STRIKES[:, None] * annuities[MATURITIES - 1] - 1
    value = (-NOTIONAL * np.minimum(swaps, 0)).sum(0)
    return float((value / np.prod(1 + QUARTER * rates[:STEPS], 0)).mean())


def data(paths: int) -> tuple[Array, Array, Array]:
    draws = np.random.default_rng(0).normal(size=(STEPS, paths))
    return np.full(RATES, 0.05), np.full(RATES, 0.2), draws


# -- systems: what is called for the price, and for the price with sensitivities --------------------------------------

Call = Callable[[Array, Array, Array], Any]


def by_staticgrad(form: str, paths: int) -> tuple[Call, Call, float, str]:
    import staticgrad as sg

    with sg.Graph() as graph:
        feeds = [sg.placeholder(shape, sg.float64) for shape in ((RATES,), (RATES,), (STEPS, paths))]
        price = {"unrolled": unrolled, "scan": scanned}[form](sg, *feeds)
        fetches = [price, *sg.gradients(price, feeds[:2])]
    session = sg.Session(graph, num_threads=1)
    alone, greeks = (session.compile(f, feeds, wait=True) for f in (price, fetches))
    return (
        alone,
        greeks,
        greeks.memory.arena_bytes / 2**20,
        f"price\n{alone.setup}\nprice and sensitivities\n{greeks.setup}",
    )


def by_jax(form: str, paths: int) -> tuple[Call, Call, float, str]:
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp

    class Names:
        """NumPy's names in JAX that differ from those used here."""

        cumulative_sum, cumulative_prod = staticmethod(jnp.cumsum), staticmethod(jnp.cumprod)
        concat = staticmethod(jnp.concatenate)

        def __getattr__(self, name: str) -> Any:
            return getattr(jnp, name)

    def price(*feeds: Any) -> Any:
        return unrolled(Names(), *feeds)

    alone, greeks = jax.jit(price), jax.jit(jax.value_and_grad(price, (0, 1)))
    given = data(paths)
    jax.block_until_ready((alone(*given), greeks(*given)))

    def with_greeks(*feeds: Array) -> list[Any]:
        value, slopes = jax.block_until_ready(greeks(*feeds))
        return [value, *slopes]

    return lambda *feeds: jax.block_until_ready(alone(*feeds)), with_greeks, 0.0, ""


def checked(alone: Call, greeks: Call | None, paths: int) -> None:
    """Raise where the price is not NumPy's, or a sensitivity not that of differences."""
    start, vol, draws = data(paths)
    expected = by_numpy(start, vol, draws)
    np.testing.assert_allclose(float(np.asarray(alone(start, vol, draws))), expected, rtol=1e-12)
    if greeks is None:
        return
    value, *found = greeks(start, vol, draws)
    np.testing.assert_allclose(float(np.asarray(value)), expected, rtol=1e-12)
    step = 1e-6 * np.eye(RATES)[30]
    for sensitivities, up, down in zip(
        found,
        (by_numpy(start + step, vol, draws), by_numpy(start, vol + step, draws)),
        (by_numpy(start - step, vol, draws), by_numpy(start, vol - step, draws)),
        strict=True,
    ):
        np.testing.assert_allclose(np.asarray(sensitivities)[30], (up - down) / 2e-6, rtol=1e-5)


# -- processes ---------------------------------------------------------------------------------------------------------


def work(system: str, form: str, paths: int, seconds: float) -> dict[str, Any]:
    """What one process measures."""
    begin = time.process_time()
    arena, phases = 0.0, ""
    if system == "numpy":
        alone, greeks = by_numpy, None
    else:
        alone, greeks, arena, phases = {"staticgrad": by_staticgrad, "jax": by_jax}[system](form, paths)
    setup = time.process_time() - begin
    checked(alone, greeks, paths)
    given = data(paths)
    timed = {"price": alone} | ({} if greeks is None else {"greeks": greeks})
    clock = time.process_time if system == "jax" else time.thread_time
    best = dict.fromkeys(timed, float("inf"))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, call in timed.items():
            started = clock()
            for _ in range(turns := max(1, 256 // paths)):
                call(*given)
            best[name] = min(best[name], (clock() - started) / turns / paths * 1e6)
    return {"best": best, "setup": setup, "arena": arena, "phases": phases}


def measured(arguments: list[str]) -> dict[str, Any] | str:
    """The result of a process, or why there is none."""
    done = subprocess.run([sys.executable, __file__, "--work", *arguments], capture_output=True, text=True)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["failed"])[-1]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paths", default="8,16,32,64,128,256")
    parser.add_argument("--forms", default="unrolled,scan")
    parser.add_argument("--systems", default="staticgrad,numpy,jax")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--phases", action="store_true")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work is not None:
        system, form, paths, seconds = args.work
        print(json.dumps(work(system, form, int(paths), float(seconds))))
        return
    cases = [
        (system, form, int(paths))
        for paths in args.paths.split(",")
        for system in args.systems.split(",")
        for form in (args.forms.split(",") if system == "staticgrad" else ["unrolled"])
    ]
    found: dict[tuple[str, str, int], list[dict[str, Any]]] = {case: [] for case in cases}
    for _ in range(args.rounds):
        for case in cases:
            result = measured([*map(str, case), str(args.seconds)])
            if isinstance(result, str):
                print(f"{' '.join(map(str, case))}: {result}", file=sys.stderr)
            else:
                found[case].append(result)
    print("| paths | system | price, us a path | with 160 sensitivities | ratio | set-up, s | arena, MiB |")
    print("|---|---|---|---|---|---|---|")
    for (system, form, paths), results in found.items():
        if results:
            price, greeks = (min(r["best"].get(k, float("inf")) for r in results) for k in ("price", "greeks"))
            setup = max(r["setup"] for r in results)  # the first, before anything was kept on disk
            name = f"{system}, {form}" if system == "staticgrad" else system
            ours = f"{greeks:.2f} | {greeks / price:.2f}" if greeks < float("inf") else "- | -"
            if args.phases and results[0]["phases"]:
                print(f"{name}, {paths} paths: {results[0]['phases']}", file=sys.stderr)
            print(f"| {paths} | {name} | {price:.2f} | {ours} | {setup:.2f} | {results[0]['arena']:.2f} |")


if __name__ == "__main__":
    main()
