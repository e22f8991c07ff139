"""NIST's nonlinear regressions with certified values: models by their formulas, and a reader of the data.

A model takes a namespace, ``sg`` or ``np``, so that other solvers can be asked the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parents[1] / "data" / "nist"
Array = np.ndarray[Any, Any]
Model = Callable[[Any, Any, Any], Any]


def _gauss(o: Any, b: Any, x: Any) -> Any:
    bells = [b[i] * o.exp(-(((x - b[i + 1]) / b[i + 2]) ** 2)) for i in (2, 5)]
    return b[0] * o.exp(-b[1] * x) + bells[0] + bells[1]


def _lanczos(o: Any, b: Any, x: Any) -> Any:
    return b[0] * o.exp(-b[1] * x) + b[2] * o.exp(-b[3] * x) + b[4] * o.exp(-b[5] * x)


def _chwirut(o: Any, b: Any, x: Any) -> Any:
    return o.exp(-b[0] * x) / (b[1] + b[2] * x)


def _rising(o: Any, b: Any, x: Any) -> Any:
    return b[0] * (1 - o.exp(-b[1] * x))


def _cubic(o: Any, b: Any, x: Any) -> Any:
    return (b[0] + b[1] * x + b[2] * x**2 + b[3] * x**3) / (1 + b[4] * x + b[5] * x**2 + b[6] * x**3)


def _enso(o: Any, b: Any, x: Any) -> Any:
    def wave(cosine: Any, sine: Any, period: Any) -> Any:
        return cosine * o.cos(2 * np.pi * x / period) + sine * o.sin(2 * np.pi * x / period)

    return b[0] + wave(b[1], b[2], 12) + wave(b[4], b[5], b[3]) + wave(b[7], b[8], b[6])


MODELS: dict[str, Model] = {
    "Bennett5": lambda o, b, x: b[0] * (b[1] + x) ** (-1 / b[2]),
    "BoxBOD": _rising,
    "Chwirut1": _chwirut,
    "Chwirut2": _chwirut,
    "DanWood": lambda o, b, x: b[0] * x ** b[1],
    "ENSO": _enso,
    "Eckerle4": lambda o, b, x: (b[0] / b[1]) * o.exp(-0.5 * ((x - b[2]) / b[1]) ** 2),
    "Gauss1": _gauss,
    "Gauss2": _gauss,
    "Gauss3": _gauss,
    "Hahn1": _cubic,
    "Kirby2": lambda o, b, x: (b[0] + b[1] * x + b[2] * x**2) / (1 + b[3] * x + b[4] * x**2),
    "Lanczos1": _lanczos,
    "Lanczos2": _lanczos,
    "Lanczos3": _lanczos,
    "MGH09": lambda o, b, x: b[0] * (x**2 + x * b[1]) / (x**2 + x * b[2] + b[3]),
    "MGH10": lambda o, b, x: b[0] * o.exp(b[1] / (x + b[2])),
    "MGH17": lambda o, b, x: b[0] + b[1] * o.exp(-x * b[3]) + b[2] * o.exp(-x * b[4]),
    "Misra1a": _rising,
    "Misra1b": lambda o, b, x: b[0] * (1 - (1 + b[1] * x / 2) ** -2.0),
    "Misra1c": lambda o, b, x: b[0] * (1 - (1 + 2 * b[1] * x) ** -0.5),
    "Misra1d": lambda o, b, x: b[0] * b[1] * x / (1 + b[1] * x),
    "Nelson": lambda o, b, x: b[0] - b[1] * x[0] * o.exp(-b[2] * x[1]),  # of the logarithm
    "Rat42": lambda o, b, x: b[0] / (1 + o.exp(b[1] - b[2] * x)),
    "Rat43": lambda o, b, x: b[0] / (1 + o.exp(b[1] - b[2] * x)) ** (1 / b[3]),
    "Roszman1": lambda o, b, x: b[0] - b[1] * x - o.atan(b[2] / (x - b[3])) / np.pi,
    "Thurber": _cubic,
}


@dataclass(frozen=True)
class Regression:
    """A data set.

    Attributes:
        starts: the two first points. ``certified``: the parameters; ``deviation``: the residual standard deviation.
        x: what the model reads of each observation; ``y``: what it is compared with.
    """

    name: str
    starts: tuple[Array, Array]
    certified: Array
    deviation: float
    x: Array
    y: Array

    def residuals(self, o: Any, b: Any, x: Any, y: Any) -> Any:
        return y - MODELS[self.name](o, b, x)

    def digits(self, b: Array) -> float:
        """To how many digits the worst of the parameters is the certified one; NIST gives eleven."""
        errors = np.abs((b - self.certified) / self.certified)
        return float(-np.log10(np.maximum(errors.max(), 1e-11)))

    def digits_of_deviation(self, cost: float) -> float:
        found = np.sqrt(2 * cost / (self.y.size - self.certified.size))
        return float(-np.log10(np.maximum(abs(found / self.deviation - 1), 1e-11)))


def regression(name: str) -> Regression:
    text = (FOLDER / f"{name}.dat").read_text(encoding="ascii")
    rows = np.array([line.split() for line in re.findall(r"^ *b\d+ =(.*)$", text, re.MULTILINE)], float)
    (deviation,) = re.findall(r"Residual Standard Deviation: *(\S+)", text)
    data = np.array([line.split() for line in text[text.rindex("Data:") :].splitlines()[1:] if line.strip()], float)
    y, x = data[:, 0], data[:, 1] if data.shape[1] == 2 else data[:, 1:].T
    y = np.log(y) if name == "Nelson" else y
    return Regression(name, (rows[:, 0], rows[:, 1]), rows[:, 2], float(deviation), np.ascontiguousarray(x), y)
