"""Stan programs as C functions that nutpie samples: ``staticgrad.stan.compile(code_or_path, data)``.

Input: a Stan program, its intermediate form, or a path, and data. Output: value and gradient of the log density at an
unconstrained vector, and what a trace has of a draw, each a program of its own and a C function; nutpie calls them from
its threads without the GIL. Data are constants of the programs.

stanli translates the source (``stan_to_mir``); the rest is done here. No C++ compiler has part in it.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from staticgrad.base.errors import StaticGradError
from staticgrad.base.types import dtype_of
from staticgrad.bridges.stan import form
from staticgrad.bridges.stan.conversion import Model, StanDialect, read_data
from staticgrad.bridges.stan.values import shape, tensor
from staticgrad.compiler.autodiff.reverse import gradients
from staticgrad.graph.graph import Graph
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.optable import Array
from staticgrad.runtime.callers.cfunction import CFunction
from staticgrad.runtime.session.session import Session

F64 = dtype_of(np.dtype(np.float64))
VERSION = "0.24"  # of stanli whose forms are read
INIT_RADIUS, INIT_TRIES = 2.0, 100  # chains begin uniformly within this, where the log density is finite, as in Stan


def compile(code_or_path: str | os.PathLike[str], data: Any = None) -> StanModel:
    """Compile a Stan program for ``nutpie.sample``, without a C++ compiler.

    Args:
        code_or_path: the source of a program, the path of a ``.stan`` file, or an intermediate form, as
            ``stanli.stan_to_mir`` gives it (which needs no stanli here).
        data: the data by name, JSON text, or the path of a JSON file.

    Raises:
        ImportError: stanli is missing: ``pip install '.[stan]'`` in a checkout; or it is of another version.
        UnsupportedError: the program calls functions that are not converted; it lists all of them, with lines.
        StaticGradError: the program is no Stan program, data are missing or of another shape.

    Example:
        >>> import nutpie, staticgrad.stan  # doctest: +SKIP
        >>> model = staticgrad.stan.compile("eight_schools.stan", {"J": 8, "y": y, "sigma": sigma})  # doctest: +SKIP
        >>> trace = nutpie.sample(model, seed=1)  # doctest: +SKIP
    """
    text, code, file = _form_of(code_or_path)
    given = read_data(data)
    return StanModel(Model(form.read(text), given, StanDialect(code, file)), (text, code, file), given)


def _form_of(source: str | os.PathLike[str]) -> tuple[str, str | None, str]:
    """The intermediate form, the source if there is one, and the file's name."""
    text, file, includes = os.fspath(source), "<stan>", None
    if text.startswith(form.HEADER):
        return text, None, file
    if not ("{" in text or "\n" in text):
        file, includes = text, [os.path.dirname(os.path.abspath(text))]
        with open(file, encoding="utf-8") as opened:
            text = opened.read()
        if text.startswith(form.HEADER):
            return text, None, file
    return _translated(text, includes), text, file


def _translated(code: str, includes: list[str] | None) -> str:
    try:
        import stanli
    except ImportError as error:
        raise ImportError("staticgrad.stan needs stanli: pip install '.[stan]' in a checkout") from error
    if not stanli.__version__.startswith(VERSION + "."):
        raise ImportError(
            f"staticgrad.stan: expected stanli {VERSION}, whose intermediate form is read here, actual stanli "
            f"{stanli.__version__}: pip install 'stanli=={VERSION}.*'"
        )
    try:
        return str(stanli.stan_to_mir(code, include_paths=includes))
    except RuntimeError as error:
        raise StaticGradError(f"stan: {error}") from None


class StanModel:
    """A Stan program with its data, which ``nutpie.sample`` takes.

    Attributes:
        n_dim: the number of unconstrained numbers of a draw.
        unconstrained_names: their names, such as ``theta.3``.
        left_out: for each variable that a trace leaves out the reason: it is drawn at random (``normal_rng``), or
            computed by a function that is not converted.
        dims: the names of dimensions by variable: none.
    """

    def __init__(self, model: Model, source: tuple[str, str | None, str], data: Mapping[str, Any]) -> None:
        self._model, self._source, self._data = model, source, data
        self.n_dim = model.n
        self.unconstrained_names = list(model.unconstrained)
        self.dims: dict[str, tuple[str, ...]] = {}
        self._lock = threading.Lock()
        self._expand: tuple[CFunction, dict[str, tuple[int, ...]]] | None = None
        self._transform_adapt: dict[str, Any] | None = None
        if not self.n_dim:
            raise StaticGradError("stan: the program has no parameters")
        with Graph() as graph:
            x = o.placeholder((self.n_dim,), F64, name="x")
            value = model.log_density(x)
            (slope,) = gradients(value, [x], unconnected_gradients="zero")
        self._logp = Session(graph, num_threads=1)._c_function([value, slope], [x], "logp", wrt=x)

    # -- the log density ----------------------------------------------------------------------------------------------

    def logp_and_gradient(self, x: Any) -> tuple[float, Array]:
        """The log density at an unconstrained vector, with all constants and Jacobians, and its gradient.

        It is NaN or -infinity where Stan rejects the vector.
        """
        x = np.ascontiguousarray(x, np.float64)
        if x.shape != (self.n_dim,):
            raise StaticGradError(f"logp: expected a vector of {self.n_dim} numbers, actual {x.shape}")
        value, grad = np.full((), np.nan), np.full(self.n_dim, np.nan)
        self._logp.ctypes(x.size, x.ctypes.data, grad.ctypes.data, value.ctypes.data, None)
        return float(value), grad

    def logp(self, x: Any) -> float:
        """The log density at an unconstrained vector."""
        return self.logp_and_gradient(x)[0]

    def cfunc(self) -> CFunction:
        """``int(size_t n, const double *x, double *grad, double *value, void *user)``; ``user`` is not read."""
        return self._logp

    # -- draws --------------------------------------------------------------------------------------------------------

    @property
    def expand(self) -> CFunction:
        """``int(size_t n, size_t m, const double *x, double *y, void *user)``: all that the trace has of a draw."""
        return self._expanded()[0]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each variable of the trace: parameters, transformed parameters, generated quantities."""
        return dict(self._expanded()[1])

    @property
    def names(self) -> list[str]:
        """The variables of the trace."""
        return list(self.shapes)

    @property
    def left_out(self) -> dict[str, str]:
        self._expanded()
        return dict(self._model.left_out)

    @property
    def coords(self) -> dict[str, Any]:
        """The coordinates of dimensions: none."""
        return {}

    def constrain(self, x: Any) -> dict[str, Array]:
        """All that the trace has of an unconstrained vector, by name."""
        x = np.ascontiguousarray(x, np.float64)
        if x.shape != (self.n_dim,):
            raise StaticGradError(f"constrain: expected a vector of {self.n_dim} numbers, actual {x.shape}")
        function, shapes = self._expanded()
        y = np.full(sum(map(math.prod, shapes.values())), np.nan)
        function.ctypes(x.size, y.size, x.ctypes.data, y.ctypes.data, None)
        pieces = np.split(y, np.cumsum([math.prod(sizes) for sizes in shapes.values()])[:-1])
        return {name: piece.reshape(shapes[name]) for name, piece in zip(shapes, pieces)}

    def with_data(self, **updates: Any) -> StanModel:
        """A model of other data, compiled anew.

        Raises:
            StaticGradError: the program declares no data of the name, or they are of another shape or kind.
        """
        unknown = set(updates) - {name for name, _ in self._model.program.inputs}
        if unknown:
            raise StaticGradError(f"with_data: the program has no data of the name {', '.join(sorted(unknown))}")
        given = {**self._data, **updates}
        _, code, file = self._source
        return StanModel(Model(self._model.program, given, StanDialect(code, file)), self._source, given)

    def with_transform_adapt(self, **options: Any) -> StanModel:
        """A model with these options of nutpie's ``transform_adapt``."""
        made = copy.copy(self)
        made._transform_adapt = options
        return made

    def initial_point(self, seed: Any = None) -> Array:
        """A point where a chain may begin: unconstrained numbers between -2 and 2 at which the log density is finite.

        Raises:
            StaticGradError: none of 100 draws is such a point.
        """
        draws = np.random.default_rng(seed)
        for _ in range(INIT_TRIES):
            x = draws.uniform(-INIT_RADIUS, INIT_RADIUS, self.n_dim)
            value, grad = self.logp_and_gradient(x)
            if np.isfinite(value) and np.all(np.isfinite(grad)):
                return x
        raise StaticGradError(f"stan: the log density is finite at none of {INIT_TRIES} initial points")

    def _expanded(self) -> tuple[CFunction, dict[str, tuple[int, ...]]]:
        with self._lock:
            if self._expand is None:
                with Graph() as graph:
                    x = o.placeholder((self.n_dim,), F64, name="x")
                    found = self._model.quantities(x)
                    flat = [o.reshape(tensor(value), (-1,)) for value in found.values()]
                    trace = o.concat([*flat]) if len(flat) > 1 else flat[0]
                function = Session(graph, num_threads=1)._c_function(trace, [x], "vector", wrt=x)
                self._expand = function, {name: shape(value) for name, value in found.items()}
            return self._expand

    # -- what nutpie calls --------------------------------------------------------------------------------------------

    def _make_model(self, init_mean: Array) -> Any:
        return self._for_nutpie()._make_model(init_mean)

    def _make_sampler(self, *arguments: Any) -> Any:
        return self._for_nutpie()._make_sampler(*arguments)

    def _for_nutpie(self) -> Any:
        """nutpie's own model of two C functions."""
        try:
            import nutpie.compile_pymc as nutpie_path
        except ImportError as error:
            raise ImportError("sampling needs nutpie: pip install '.[stan]' in a checkout") from error
        expand, shapes = self._expanded()
        fields = {
            "dims": {}, "reparameterized_names": [], "compiled_logp_func": self._logp, "compiled_expand_func": expand,
            "initial_point_func": self.initial_point, "shared_data": {}, "user_data": np.zeros(1, np.uintp),
            "n_expanded": sum(map(math.prod, shapes.values())), "shape_info": (list(shapes), [], list(shapes.values())),
            "logp_func": self, "expand_func": self, "_n_dim": self.n_dim, "_shapes": shapes, "_coords": {},
            "_transform_adapt_args": self._transform_adapt, "shared_var_keys": {},
        }  # fmt: skip
        known = {field.name for field in dataclasses.fields(nutpie_path.CompiledPyMCModel)}  # versions differ
        return nutpie_path.CompiledPyMCModel(**{name: value for name, value in fields.items() if name in known})
