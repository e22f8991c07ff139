"""Reference values of Stan programs, by stanli: ``python tests/make_stan.py [NAME ...]``.

For each program ``tests/data/stan/NAME.stan``, with its data in ``NAME.json``, it writes the intermediate form
(``NAME.form.gz``), and into ``NAME.json`` the log density with all constants, its gradient and the constrained values
at a few unconstrained points. stanli drops constants where a form says that they may be; in the forms of which it is
asked they may not.
"""

from __future__ import annotations

import base64
import ctypes
import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import stanli

FOLDER = Path(__file__).parent / "data" / "stan"
POINTS = 3
REFUSED = ("lotka_volterra", "parameter_break", "parameter_loop")  # here, not by stanli


def keeping_constants(text: str) -> str:
    """A form in which no density may drop constants: the byte after its name says so."""
    header, _, body = text.partition(":")
    data = re.sub(rb"(_lp[dm]f)\x01", lambda found: found[1] + b"\x00", base64.b64decode(body))
    return f"{header}:{base64.b64encode(data).decode()}"


class Oracle:
    """A model of stanli's, called through the C interface that BridgeStan's models have."""

    def __init__(self, text: str, data: dict[str, Any]) -> None:
        self.library = stanli._lib
        payload = {**data, "__stanli": {"build_id": stanli.build_id(), "mir": keeping_constants(text), "name": "model"}}
        self.library.bs_model_construct.restype = ctypes.c_void_p
        self.library.bs_rng_construct.restype = ctypes.c_void_p
        self.library.bs_param_names.restype = ctypes.c_char_p
        error = ctypes.c_char_p()
        encoded = json.dumps(payload).encode()
        model = self.library.bs_model_construct(encoded, ctypes.c_uint(1), ctypes.byref(error))
        if not model:
            raise RuntimeError((error.value or b"").decode())
        self.model = ctypes.c_void_p(model)
        self.size = int(self.library.bs_param_unc_num(self.model))

    def logp(self, x: Any) -> tuple[float, Any]:
        """The log density, with all constants, and its gradient."""
        x, grad = np.ascontiguousarray(x, np.float64), np.empty(self.size)
        value, error = ctypes.c_double(), ctypes.c_char_p()
        status = self.library.bs_log_density_gradient(
            self.model, ctypes.c_bool(True), ctypes.c_bool(True), ctypes.c_void_p(x.ctypes.data), ctypes.byref(value),
            ctypes.c_void_p(grad.ctypes.data), ctypes.byref(error),
        )  # fmt: skip
        if status:
            raise RuntimeError((error.value or b"").decode())
        return value.value, grad

    def constrained(self, x: Any) -> dict[str, float]:
        """Parameters and transformed parameters by name and place, as ``theta.1.2``."""
        yes, no, error = ctypes.c_bool(True), ctypes.c_bool(False), ctypes.c_char_p()
        names = self.library.bs_param_names(self.model, yes, no).decode().split(",")
        x, y = np.ascontiguousarray(x, np.float64), np.empty(len(names))
        rng = self.library.bs_rng_construct(ctypes.c_uint(1), ctypes.byref(error))
        status = self.library.bs_param_constrain(
            self.model, yes, no, ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_void_p(rng),
            ctypes.byref(error),
        )  # fmt: skip
        if status:
            raise RuntimeError((error.value or b"").decode())
        return dict(zip(names, y.tolist(), strict=True))


def points(size: int, seed: int) -> Any:
    """A few unconstrained vectors."""
    return np.random.default_rng(seed).normal(size=(POINTS, size)).round(3) * 0.7


def make(path: Path) -> None:
    """Write the form and the reference values of a program."""
    text = stanli.stan_to_mir(path.read_text())
    with gzip.GzipFile(path.with_suffix(".form.gz"), "wb", mtime=0) as file:
        file.write(text.encode())
    given = json.loads(path.with_suffix(".json").read_text())
    made: dict[str, Any] = {"data": given["data"]}
    if path.stem not in REFUSED:
        oracle = Oracle(text, given["data"])
        made["points"] = points(oracle.size, len(path.stem)).tolist()
        found = [oracle.logp(x) for x in made["points"]]
        made["values"] = [value for value, _ in found]
        made["gradients"] = [grad.tolist() for _, grad in found]
        made["constrained"] = oracle.constrained(made["points"][0])
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in made.items()]
    path.with_suffix(".json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    for source in sorted(FOLDER.glob("*.stan")):
        if len(sys.argv) == 1 or source.stem in sys.argv[1:]:
            make(source)
            print(source.stem)
