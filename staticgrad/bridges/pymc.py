"""PyMC models as C functions that nutpie samples: ``staticgrad.pymc.compile(model)``.

Input: a PyMC model. Output: what ``nutpie.sample`` takes. The model's logp is a graph of PyTensor; it is canonicalized
and stabilized there, converted (``staticgrad.pytensor``) and derived here. Two C functions come out: value and gradient
of the logp at an unconstrained vector, and what the trace has of a draw. nutpie calls them from its threads without the
GIL; numba has no part in it.

Data containers (``pm.Data``) are fed, through a table of addresses. What follows from them alone is computed once, when
they change, and is fed likewise. Programs are compiled for the sizes that the data have: other values compile nothing,
other sizes compile anew.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from staticgrad.base.errors import StaticGradError

try:
    import nutpie.compile_pymc as numba_path
    from nutpie.sample import CompiledModel as NutpieModel
    from pymc.initial_point import make_initial_point_fn
    from pymc.logprob.utils import CheckParameterValue
    from pytensor.compile.sharedvalue import SharedVariable
    from pytensor.graph.replace import clone_replace
    from pytensor.graph.rewriting.utils import rewrite_graph
    from pytensor.graph.traversal import ancestors
except ImportError as error:
    raise ImportError("staticgrad.pymc needs PyMC and nutpie: pip install '.[pymc]' in a checkout") from error

from staticgrad.base.types import dtype_of
from staticgrad.bridges.pytensor import Translation
from staticgrad.compiler.autodiff.reverse import gradients
from staticgrad.graph.graph import Graph, Node, Tensor
from staticgrad.graph.optable import FUNCTIONS as o
from staticgrad.graph.optable import Array
from staticgrad.ops.sources import MOST_CARRIED
from staticgrad.runtime.callers.cfunction import CFunction
from staticgrad.runtime.session.session import Session

F64 = np.dtype(np.float64)
# Since 0.16.9 nutpie is told which variables are transformed, and puts them into a group of their own.
_TAKES_TRANSFORMED = any(field.name == "reparameterized_names" for field in dataclasses.fields(NutpieModel))
REWRITES = ("canonicalize", "stabilize", "local_remove_check_parameter")
Shapes = dict[str, tuple[int, ...]]
Arrays = dict[str, Array]
Draw = Callable[[Any], dict[str, Array]]


def compile(
    model: Any,
    *,
    var_names: Iterable[str] | None = None,
    initial_points: Mapping[Any, Any] | None = None,
    jitter_rvs: Iterable[Any] | None = None,
    default_initialization_strategy: str = "support_point",
) -> CompiledModel:
    """Compile a PyMC model for ``nutpie.sample``, without numba.

    Args:
        model: a ``pm.Model`` of continuous variables.
        var_names: the deterministic and transformed variables that the trace shall have; default: all.
        initial_points, jitter_rvs, default_initialization_strategy: where chains begin, as in
            ``nutpie.compile_pymc_model``.

    Raises:
        ImportError: (when the module is imported) PyMC or nutpie is missing: ``pip install '.[pymc]'`` in a
            checkout.
        StaticGradError: discrete free variables, none at all, or an op of PyTensor that is not converted.

    Example:
        >>> import nutpie, pymc as pm, staticgrad.pymc  # doctest: +SKIP
        >>> with pm.Model() as model:  # doctest: +SKIP
        ...     mu = pm.Normal("mu", 0, 10)
        ...     pm.Normal("y", mu, 1, observed=[1.0, 2.0, 3.0])
        >>> trace = nutpie.sample(staticgrad.pymc.compile(model), seed=1)  # doctest: +SKIP
    """
    names = None if var_names is None else frozenset(var_names)
    jitter = None if jitter_rvs is None else set(jitter_rvs)
    source = _ModelSource(model, names, initial_points, jitter, default_initialization_strategy)
    more: dict[str, Any] = {"reparameterized_names": source.transformed} if _TAKES_TRANSFORMED else {}
    compiled = CompiledModel(model.named_vars_to_dims, source, **more)
    compiled.program  # noqa: B018 -- errors belong here
    return compiled


@dataclasses.dataclass(frozen=True, eq=False)
class CompiledModel(NutpieModel):  # type: ignore[misc]
    """A model that ``nutpie.sample`` takes. The data are those that the model has when sampling begins (``pm.set_data``
    changes them), but for those that ``with_data`` has set.

    Attributes:
        source: the model and the options.
        given: data by name that ``with_data`` has set.
    """

    source: _ModelSource
    given: Arrays = dataclasses.field(default_factory=dict)
    kept: list[_FedModel] = dataclasses.field(default_factory=list)  # the latest
    transform_adapt: Mapping[str, Any] | None = None

    @property
    def fed(self) -> _FedModel:
        """The program for the data as they are now, and what it is fed."""
        data = self.source.data(self.given)
        if not self.kept or not self.kept[0].program.fits(data):
            self.kept[:] = [_ModelProgram(self.source, data).feed(data)]
        elif not self.kept[0].has(data):
            self.kept[:] = [self.kept[0].program.feed(data)]
        return self.kept[0]

    @property
    def program(self) -> _ModelProgram:
        return self.fed.program

    @property
    def logp(self) -> CFunction:
        """``int(size_t n, const double *x, double *grad, double *value, void *user)``; ``fed.address`` is the user."""
        return self.program.logp

    @property
    def expand(self) -> CFunction:
        """``int(size_t n, size_t m, const double *x, double *y, void *user)``: all that the trace has of a draw."""
        return self.program.expand

    @property
    def n_dim(self) -> int:
        """The number of unconstrained numbers of a draw."""
        return self.program.n

    @property
    def shapes(self) -> Shapes:
        """The shape of each variable of the trace."""
        return dict(self.program.shapes)

    @property
    def coords(self) -> dict[str, Any]:
        """The coordinates of each dimension, and ``unconstrained_parameter``."""
        return self.source.coords(self.program.shapes)[1]

    def logp_and_gradient(self, x: Array) -> tuple[float, Array]:
        """The logp at an unconstrained vector and its gradient; NaN where a check of the model fails."""
        x = np.ascontiguousarray(x, np.float64)
        value, grad = np.full((), np.nan), np.full(self.n_dim, np.nan)
        fed = self.fed
        status = fed.program.logp.ctypes(x.size, x.ctypes.data, grad.ctypes.data, value.ctypes.data, fed.address)
        if status < 0:
            raise StaticGradError(f"logp: expected a vector of {self.n_dim} numbers, actual {x.shape}")
        return float(value), grad

    def with_data(self, **updates: Any) -> CompiledModel:
        """A model of other data, which compiles nothing if they have the sizes of the old ones.

        Raises:
            KeyError: no data container of the model has the name.
            ValueError: another number of dimensions, another kind of numbers.
        """
        old = self.source.data(self.given)
        given = dict(self.given)
        for name, value in updates.items():
            if name not in old:
                raise KeyError(f"with_data: {name!r} is none of the model's data: {', '.join(old) or 'it has none'}")
            new, dtype = np.asarray(value), old[name].dtype
            if new.ndim != old[name].ndim:
                raise ValueError(f"with_data: {name!r}: expected {old[name].ndim} dimensions, actual shape {new.shape}")
            if not np.can_cast(new.dtype, dtype, "same_kind"):
                raise ValueError(f"with_data: {name!r}: expected {dtype}, actual {new.dtype}")
            given[name] = np.array(new, dtype, order="C")
        return dataclasses.replace(self, given=given, kept=list(self.kept))

    def with_transform_adapt(self, **options: Any) -> CompiledModel:
        """A model with these options of nutpie's ``transform_adapt``."""
        return dataclasses.replace(self, transform_adapt=options)

    # -- what nutpie calls --------------------------------------------------------------------------------------------

    def _make_model(self, init_mean: Array) -> Any:
        return self._for_nutpie()._make_model(init_mean)

    def _make_sampler(self, *arguments: Any) -> Any:
        return self._for_nutpie()._make_sampler(*arguments)

    def _for_nutpie(self) -> Any:
        """nutpie's own model, whose C functions would be numba's."""
        fed, program = self.fed, self.program
        dims, coords = self.source.coords(program.shapes)
        slices, start = [], 0
        for shape in program.shapes.values():
            slices.append(slice(start, start := start + math.prod(shape)))
        fields = {
            "dims": dims,
            "reparameterized_names": self.source.transformed,
            "compiled_logp_func": program.logp,
            "compiled_expand_func": program.expand,
            "initial_point_func": program.start,
            "shared_data": fed.data,
            "user_data": fed.user,
            "n_expanded": program.m,
            "shape_info": (list(program.shapes), slices, list(program.shapes.values())),
            "logp_func": program,
            "expand_func": fed,  # whose arrays the user data points to
            "_n_dim": program.n,
            "_shapes": dict(program.shapes),
            "_coords": coords,
            "_transform_adapt_args": None if self.transform_adapt is None else dict(self.transform_adapt),
            "shared_var_keys": {},
        }
        known = {field.name for field in dataclasses.fields(numba_path.CompiledPyMCModel)}  # versions differ
        return numba_path.CompiledPyMCModel(**{name: value for name, value in fields.items() if name in known})


@dataclasses.dataclass(frozen=True, eq=False)
class _ModelSource:
    """A model, and what programs for it depend on beside the data."""

    model: Any
    var_names: frozenset[str] | None
    initial_points: Mapping[Any, Any] | None
    jitter_rvs: set[Any] | None
    strategy: str

    def __post_init__(self) -> None:
        discrete = [v.name for v in self.model.discrete_value_vars]
        if discrete:
            raise StaticGradError(f"staticgrad.pymc: discrete free variables have no gradient: {', '.join(discrete)}")
        if not self.model.free_RVs:
            raise StaticGradError("staticgrad.pymc: the model has no free variables")

    @property
    def containers(self) -> dict[str, Any]:
        """The data containers by name."""
        return {str(v.name): v for v in self.model.data_vars if isinstance(v, SharedVariable)}

    def data(self, given: Arrays) -> Arrays:
        """The data as they are now."""
        return {name: given[name] if name in given else np.asarray(v.get_value(borrow=True))
                for name, v in self.containers.items()}  # fmt: skip

    @property
    def transformed(self) -> list[str]:
        """The names of free variables that are not sampled as they are, but transformed."""
        transforms, values = self.model.rvs_to_transforms, self.model.rvs_to_values
        return [values[rv].name for rv in self.model.free_RVs if transforms.get(rv) is not None]

    def drawing(self) -> Draw:
        """A function of a seed that gives the value of each free variable at which a chain begins."""
        jitter = self.jitter_rvs
        if jitter is None and self.strategy == "support_point":
            jitter = set(self.model.free_RVs)
        found: Draw = make_initial_point_fn(
            model=self.model, overrides=self.initial_points, default_strategy=self.strategy, jitter_rvs=jitter,
            return_transformed=True,
        )  # fmt: skip
        return found

    def coords(self, shapes: Shapes) -> tuple[dict[str, Any], dict[str, Any]]:
        """Dimensions by variable, and coordinates by dimension."""
        info = (list(shapes), [None] * len(shapes), list(shapes.values()))
        names = (self.transformed,) if _TAKES_TRANSFORMED else ()
        dims, coords = numba_path._prepare_dims_and_coords(self.model, info, *names)
        return dims, coords


class _ModelProgram:
    """The C functions of a model for data of certain types."""

    def __init__(self, source: _ModelSource, data: Arrays) -> None:
        model = source.model
        self.types = {name: (array.shape, array.dtype) for name, array in data.items()}
        draw, lock = source.drawing(), threading.Lock()
        values = {model.rvs_to_values[rv]: rv for rv in model.free_RVs}
        point = draw(0)
        self.shapes: Shapes = {v.name: tuple(point[v.name].shape) for v in values}
        self.n = sum(map(math.prod, self.shapes.values()))
        starts = numba_path._rv_dict_to_flat_array_wrapper(draw, list(self.shapes), list(self.shapes.values()))

        def start(seed: Any) -> Array:
            with lock:  # chains begin in threads of their own
                found: Array = starts(seed)
            return found

        self.start = start
        logp, conditions, variables = _pytensor_graphs(source, list(values))
        with Graph() as graph:
            x = o.placeholder((self.n,), F64, name="x")
            pieces, at = [], 0
            for shape in self.shapes.values():
                pieces.append(o.reshape(x[at : (at := at + math.prod(shape))], shape))
            feeds = {name: o.placeholder(t[0], dtype_of(t[1]), name=name) for name, t in self.types.items()}
            known: dict[Any, Any] = {source.containers[name]: feed for name, feed in feeds.items()}
            known |= {v: o.astype(piece, dtype_of(np.dtype(v.dtype))) for v, piece in zip(values, pieces, strict=True)}
            outputs = [logp, *conditions, *variables.values()]
            self._lengths = _other_shared(outputs, known)
            known |= self._lengths
            translation = Translation(known)
            translation.convert(list(known), outputs)
            found = iter(translation.tensors(outputs))
            value = o.astype(next(found), F64)
            holds = [next(found) for _ in conditions]
            slopes = gradients(value, pieces, unconnected_gradients="zero")
            gradient = o.concat([o.reshape(slope, (-1,)) for slope in slopes])
            if holds:
                value = o.where(_all(holds), value, -np.inf)
            expanded = [x]
            for name, y in zip(variables, found, strict=True):
                self.shapes[name] = tuple(map(int, y.shape))
                expanded.append(o.reshape(o.astype(y, F64), (-1,)))
            trace = o.concat(expanded)
        self.m = sum(map(math.prod, self.shapes.values()))
        session = Session(graph, num_threads=1)
        hoisted = hoistable([value, gradient, trace], x)
        self._hoist = session.compile(hoisted, list(feeds.values())) if hoisted else None
        fed = [x, *feeds.values(), *hoisted]
        self.logp = session._c_function([value, gradient], fed, "logp", wrt=x)
        self.expand = session._c_function(trace, fed, "vector", wrt=x)

    def fits(self, data: Arrays) -> bool:
        """True if the program is one for data of these types, and dimensions have the lengths that they had."""
        types = {name: (array.shape, array.dtype) for name, array in data.items()}
        return self.types == types and all(_equal(value, v.get_value()) for v, value in self._lengths.items())

    def feed(self, data: Arrays) -> _FedModel:
        """The program with what its C functions are fed for these data."""
        copies = {name: np.array(array, order="C") for name, array in data.items()}
        hoisted = [] if self._hoist is None else self._hoist(*copies.values())
        return _FedModel(self, copies, hoisted)


class _FedModel:
    """A program and the ``arrays`` that it is fed beside x: the data and what was hoisted. At ``address`` is what its C
    functions take as ``user``."""

    def __init__(self, program: _ModelProgram, data: Arrays, hoisted: Sequence[Array]) -> None:
        self.program, self.data = program, data
        self.arrays = [*data.values(), *hoisted]
        # Of one array its address is handed over, of several that of a table.
        table = np.array([array.ctypes.data for array in self.arrays], np.uintp)
        self.user: Array = self.arrays[0] if len(self.arrays) == 1 else table
        self.address: int = self.user.ctypes.data

    def has(self, data: Arrays) -> bool:
        """True if these are the data."""
        return all(_equal(array, data[name]) for name, array in self.data.items())


def _equal(a: Array, b: Array) -> bool:
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


def _pytensor_graphs(source: _ModelSource, values: Sequence[Any]) -> tuple[Any, list[Any], dict[str, Any]]:
    """The logp without its checks of parameters, what they check, and the variables of the trace beside the values."""
    model = source.model
    logp = model.logp()
    checks = [v.owner for v in ancestors([logp]) if v.owner is not None and isinstance(v.owner.op, CheckParameterValue)]
    conditions = list(dict.fromkeys(c for node in checks for c in node.inputs[1:])) if model.check_bounds else []
    known = {v.name for v in values}
    variables = {v.name: v for v in model.unobserved_value_vars if v.name not in known}
    if source.var_names is not None:
        variables = {name: v for name, v in variables.items() if name in source.var_names}
    copies = clone_replace([logp, *conditions, *variables.values()])
    outputs: Any = rewrite_graph(copies, include=REWRITES)
    count = 1 + len(conditions)
    return outputs[0], outputs[1:count], dict(zip(variables, outputs[count:], strict=True))


def _other_shared(outputs: Sequence[Any], known: Mapping[Any, Any]) -> dict[Any, Array]:
    """Shared variables that are no data containers, such as lengths of dimensions, and their values."""
    shared: list[Any] = [v for v in ancestors(outputs) if isinstance(v, SharedVariable) and v not in known]
    return {v: np.array(v.get_value()) for v in shared}


def _all(conditions: Sequence[Tensor]) -> Tensor:
    found = conditions[0]
    for condition in conditions[1:]:
        found = o.logical_and(found, condition)
    return found


def hoistable(fetches: Sequence[Tensor], x: Tensor) -> list[Tensor]:
    """The tensors that do not depend on ``x`` and that what depends on it reads: from where they have to be computed
    only once. Views are read through; constants of few elements are folded by the compiler."""
    nodes: dict[Node, None] = {}
    stack = [y.op for y in fetches]
    while stack:
        node = stack.pop()
        if node not in nodes:
            nodes[node] = None
            stack.extend(operand.op for operand in node.inputs)
            stack.extend(node.control)
    varying, fed = {x.op}, set[Node]()
    order = sorted(nodes, key=lambda node: node.serial)
    for node in order:
        if node.op.draws or any(operand.op in varying for operand in node.inputs):
            varying.add(node)
        elif node.op.name == "placeholder" or any(operand.op in fed for operand in node.inputs):
            fed.add(node)
    found: dict[Tensor, None] = {}
    stack_of = [operand for node in order if node in varying for operand in node.inputs]
    stack_of += [y for y in fetches if y.op not in varying]
    while stack_of:
        y = stack_of.pop()
        if y.op in varying or y in found or y.op.op.role == "source":
            continue
        if y.op.op.view:
            stack_of.extend(y.op.inputs)
        elif y.op in fed or math.prod(map(int, y.shape)) > MOST_CARRIED:
            found[y] = None
    return list(found)
