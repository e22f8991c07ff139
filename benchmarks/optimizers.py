"""Compare searches for a minimum with SciPy's: evaluations, and microseconds of a whole call.

    OPENBLAS_NUM_THREADS=1 python benchmarks/optimizers.py [least_squares] [bounds] [--seconds S] [--json FILE]

``least_squares`` takes the problems of Moré, Garbow and Hillstrom (``tests/support/squares.py``), by
``sg.least_squares`` and ``scipy.optimize.least_squares``, each by ``trf`` and ``lm``; ``bounds`` the sums of their
squares between bounds around the starting point, by ``sg.minimize(bounds=)`` and SciPy's L-BFGS-B. SciPy is given
residuals, Jacobians, values and gradients that staticgrad has compiled, so that what is compared is the loop: in the
program, or around it. One thread for products of matrices is what SciPy is fastest with here. Both take turns, and
the least time of each is told. A minimum that differs is marked.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize

import staticgrad as sg

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from support.squares import PROBLEMS

TIGHT = {"ftol": 1e-10, "xtol": 1e-10, "gtol": 1e-10, "max_nfev": 2000}
Row = dict[str, Any]


def least_squares(seconds: float) -> list[Row]:
    rows = []
    for name, problem in PROBLEMS.items():
        start = np.array(problem.start, float)

        def residuals(x: Any, problem: Any = problem) -> Any:
            return problem.residuals(sg, x)

        def slopes(x: Any, residuals: Any = residuals) -> Any:
            x = sg.identity(x)
            return sg.jacobian(residuals(x), x)

        values, jacobian = sg.function(residuals), sg.function(slopes)
        for method in ("trf", "lm"):
            options: Any = {"method": method, "x_scale": "jac", **TIGHT}

            def ours(residuals: Any = residuals, start: Any = start, options: Any = options) -> Any:
                return sg.least_squares(residuals, start, **options)

            def theirs(
                values: Any = values, start: Any = start, jacobian: Any = jacobian, options: Any = options
            ) -> Any:
                return optimize.least_squares(values, start, jac=jacobian, **options)

            rows.append(_compared(f"{name}, {method}", ours, theirs, lambda found: found.cost, seconds))
    return rows


def bounds(seconds: float) -> list[Row]:
    rows, rng = [], np.random.default_rng(0)
    for name, problem in PROBLEMS.items():
        start = np.array(problem.start, float)
        lower, upper = start - rng.uniform(0.1, 1, start.size), start + rng.uniform(0.1, 1, start.size)

        def loss(x: Any, problem: Any = problem) -> Any:
            return sg.sum(problem.residuals(sg, x) ** 2)

        both = sg.value_and_grad(loss)

        def ours(loss: Any = loss, start: Any = start, sides: Any = (lower, upper)) -> Any:
            return sg.minimize(loss, start, bounds=optimize.Bounds(*sides))

        def valued(x: Any, both: Any = both) -> tuple[float, Any]:
            value, slope = both(x)
            return float(value), slope

        def theirs(valued: Any = valued, start: Any = start, sides: Any = (lower, upper)) -> Any:
            limits = optimize.Bounds(*sides)
            return optimize.minimize(
                valued, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": 1000}
            )

        rows.append(_compared(f"{name}, bounds", ours, theirs, lambda found: found.fun, seconds))
    return rows


def _compared(
    name: str, ours: Callable[[], Any], theirs: Callable[[], Any], reached: Callable[[Any], Any], seconds: float
) -> Row:
    best, results = [np.inf, np.inf], [ours(), theirs()]  # compiled by now
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for i, run in enumerate((ours, theirs)):
            begun = time.perf_counter()
            run()
            best[i] = min(best[i], time.perf_counter() - begun)
    costs = [float(reached(found)) for found in results]
    return {
        "problem": name, "evaluations": [int(found.nfev) for found in results],
        "microseconds": [1e6 * seconds for seconds in best], "minima": costs,
        "same": bool(np.isclose(*costs, rtol=1e-5, atol=1e-9)),
    }  # fmt: skip


def _tell(rows: list[Row]) -> None:
    print(f"{'':32}{'evaluations':>14}{'SciPy':>8}{'us':>10}{'SciPy':>10}{'ratio':>8}")
    for row in rows:
        (mine, others), (us, other_us) = row["evaluations"], row["microseconds"]
        mark = "" if row["same"] else f"  other minimum: {row['minima'][0]:.4g}, SciPy {row['minima'][1]:.4g}"
        print(f"{row['problem']:32}{mine:14}{others:8}{us:10.1f}{other_us:10.1f}{us / other_us:8.2f}{mark}")
    for key, what in (("evaluations", "evaluations"), ("microseconds", "time")):
        ratios = [row[key][0] / row[key][1] for row in rows if row["same"]]
        print(f"geometric mean of the ratios of {what}: {np.exp(np.mean(np.log(ratios))):.3f} of {len(ratios)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["least_squares", "bounds"], help="least_squares, bounds")
    parser.add_argument("--seconds", type=float, default=0.2, help="for each problem")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)  # SciPy's, of points that are not finite
    found = {}
    for part in given.parts:
        found[part] = {"least_squares": least_squares, "bounds": bounds}[part](given.seconds)
        _tell(found[part])
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
