"""Stan programs: log densities, gradients and constrained values beside stanli's, sampling, what is refused.

``tests/make_stan.py`` has written the forms and the reference values; only the last tests need stanli or nutpie. Most
programs are run by the interpreter, which compiles nothing.
"""

from __future__ import annotations

import functools
import gzip
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
import staticgrad.stan as sgstan
from staticgrad.bridges.stan import evaluation, form
from staticgrad.bridges.stan.conversion import Model, StanDialect
from staticgrad.bridges.stan.elements import StanArray
from staticgrad.bridges.stan.values import tensor
from staticgrad.compiler.regions.region import Region
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.ops.interpreter import evaluate

Array = np.ndarray[Any, Any]
FOLDER = Path(__file__).parents[1] / "data" / "stan"
APPROXIMATE = ("approximate", "ratings", "truncated")  # they have functions of which Stan computes fewer digits
REFUSED = "lotka_volterra"
REFUSED_LATER = {  # when they are converted: for which reason, and the line that is at fault
    "parameter_break": ("a branch on a parameter leaves a loop or a function", "if (reached > 1)"),
    "parameter_loop": ("how often a loop turns depends on parameters", "while (reached < 1)"),
}
NAMES = sorted(path.stem for path in FOLDER.glob("*.stan") if path.stem not in (REFUSED, *REFUSED_LATER, *APPROXIMATE))
BATCHED = ("capture_recapture", "early_returns", "logistic_loop", "mixture_of_k", "survival", "topics", "zero_inflated")
SCHOOLS = "eight_schools_noncentered"


def form_of(name: str) -> str:
    return gzip.decompress((FOLDER / f"{name}.form.gz").read_bytes()).decode()


def code_of(name: str) -> str:
    return (FOLDER / f"{name}.stan").read_text()


@functools.cache
def references(name: str) -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def converted(name: str, text: str | None = None) -> Model:
    return Model(form.read(text or form_of(name)), references(name)["data"], StanDialect())


def declared(model: Model) -> tuple[Graph, Tensor, Tensor, Tensor]:
    """The graph of a log density, its input, its value and its gradient."""
    with sg.Graph() as graph:
        x = sg.placeholder((model.n,), sg.float64)
        value = model.log_density(x)
        (slope,) = sg.gradients(value, [x], unconnected_gradients="zero")
    return graph, x, value, slope


def interpreted(graph: Graph, x: Tensor, fetches: list[Tensor], point: Any) -> list[Array]:
    region = Region(graph, (x,), tuple(fetches))
    return evaluate(region, [np.asarray(point, np.float64)], lambda attrs: np.zeros(())).values


def check(model: Model, name: str, value: float, slope: float) -> None:
    """The log density and its gradient at the points of a program, to these errors."""
    expected = references(name)
    graph, x, *fetches = declared(model)
    for point, logp, gradient in zip(expected["points"], expected["values"], expected["gradients"], strict=True):
        found = interpreted(graph, x, fetches, point)
        np.testing.assert_allclose(found[0], logp, rtol=value, atol=value)
        largest = max(1.0, float(np.max(np.abs(gradient))))
        np.testing.assert_allclose(found[1], gradient, rtol=slope, atol=slope * largest * 1e-2)


# -- beside stanli ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_log_density_and_gradient(name: str) -> None:
    model = converted(name)
    assert model.n == len(references(name)["points"][0])
    check(model, name, 1e-12, 1e-10)


@pytest.mark.parametrize("name", APPROXIMATE)
def test_functions_that_stan_computes_with_fewer_digits(name: str) -> None:
    check(converted(name), name, 1e-9, 1e-4)


@pytest.mark.parametrize(
    ("entry", "args", "place"),
    [("normal_lcdf", (0.7, 0.2, 1.3), 0), ("digamma", (0.37,), 0), ("gamma_q", (1.3, 0.8), 1)],
)
def test_their_derivatives_are_those_of_the_value(entry: str, args: tuple[float, ...], place: int) -> None:
    scope = evaluation.StanScope({})
    names = [f"v{k}" for k in range(len(args))]
    reads = tuple(form.Expr(form.ExprKind.NAME, name, 0, (), form.Leaf.REAL, 0, False, 0, "") for name in names)
    call = form.Expr(form.ExprKind.CALL, entry, 0, reads, form.Leaf.REAL, 0, False, 0, "")
    with sg.Graph() as graph:
        x = sg.placeholder((), sg.float64)
        scope.variables.update(zip(names, args))
        scope.variables[names[place]] = x
        value = tensor(scope.value(call))
        (slope,) = sg.gradients(value, [x])
    mid, step = args[place], 1e-4
    at = {k: float(interpreted(graph, x, [value], mid + k * step)[0]) for k in (-2, -1, 1, 2)}
    difference = (at[-2] - 8 * at[-1] + 8 * at[1] - at[2]) / (12 * step)
    found = float(interpreted(graph, x, [slope], mid)[0])
    assert math.isclose(found, difference, rel_tol=1e-9)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("all_")])
def test_constrained_values(name: str) -> None:
    model, expected = converted(name), references(name)
    with sg.Graph() as graph:
        x = sg.placeholder((model.n,), sg.float64)
        quantities = {name: tensor(value) for name, value in model.quantities(x).items()}
    values = interpreted(graph, x, list(quantities.values()), expected["points"][0])
    found = dict(zip(quantities, values, strict=True))
    names = dict.fromkeys(place.split(".")[0] for place in expected["constrained"])
    assert set(names) <= set(found), model.left_out
    for place, value in expected["constrained"].items():
        variable, *index = place.split(".")
        actual = found[variable][tuple(int(at) - 1 for at in index)]
        np.testing.assert_allclose(actual, value, rtol=1e-11, atol=1e-13, err_msg=place)


A = np.array([[2.0, 0.3, -0.4], [0.1, 1.5, 0.2], [0.6, -0.2, 1.1]])
SPD = A @ A.T
V, W = np.array([0.4, 1.2, -0.7]), np.array([0.2, 0.3, 0.5])
MOVE = np.array([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]])


def chains() -> float:
    """The probability of what a hidden Markov model has given, summed over all chains of states."""
    density = np.exp(A)  # by state and time
    return math.log(
        sum(
            W[i] * density[i, 0] * MOVE[i, j] * density[j, 1] * MOVE[j, k] * density[k, 2]
            for i in range(3)
            for j in range(3)
            for k in range(3)
        )
    )


# Functions that stanli does not have.
NOT_IN_STANLI = {
    "log_mix": ([W, V], math.log(float(np.sum(W * np.exp(V))))),
    "distance": ([V, W], math.dist(V, W)),
    "norm1": ([V], 2.3),
    "norm2": ([V], math.hypot(*V)),
    "trace": ([A], 4.6),
    "trace_quad_form": ([A, SPD], np.trace(SPD.T @ A @ SPD)),
    "log_determinant_spd": ([SPD], math.log(np.linalg.det(SPD))),
    "determinant": ([A], np.linalg.det(A)),
    "gp_dot_prod_cov": ([V, 1.3], 1.69 + np.outer(V, V)),
    "gp_exp_quad_cov": ([V, W, 0.8, 1.5], 0.64 * np.exp(-0.5 * ((V[:, None] - W) / 1.5) ** 2)),
    "symmetrize_from_lower_tri": ([A], np.tril(A) + np.tril(A, -1).T),
    "matrix_power": ([A, 3], A @ A @ A),
    "quantile": ([V, 0.4], np.quantile(V, 0.4)),
    "singular_values": ([A], np.linalg.svd(A, compute_uv=False)),
    "hmm_marginal": ([A, MOVE, W], chains()),
}


@pytest.mark.parametrize("name", NOT_IN_STANLI)
@pytest.mark.parametrize("known", [True, False], ids=["known", "declared"])
def test_functions_that_stanli_does_not_have(name: str, known: bool) -> None:
    args, expected = NOT_IN_STANLI[name]
    leaves = [form.Leaf.MATRIX if np.ndim(a) == 2 else form.Leaf.VECTOR if np.ndim(a) else form.Leaf.REAL for a in args]
    depths = [0] * len(args)
    if name.startswith("gp_"):  # points are arrays of numbers
        leaves, depths = [form.Leaf.REAL] * len(args), [np.ndim(a) for a in args]
    scope = evaluation.StanScope({})
    reads = tuple(
        form.Expr(form.ExprKind.NAME, f"v{k}", 0, (), leaf, depth, False, 0, "")
        for k, (leaf, depth) in enumerate(zip(leaves, depths, strict=True))
    )
    call = form.Expr(form.ExprKind.CALL, name, 0, reads, form.Leaf.REAL, 0, False, 0, "")
    with sg.Graph() as graph:
        x = sg.placeholder((), sg.float64)
        for k, value in enumerate(args):
            varies = not known and not isinstance(value, int | float)
            scope.variables[f"v{k}"] = value + x if varies else value
        result = tensor(scope.value(call))
    found = interpreted(graph, x, [result], 0.0)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_thin_factors_of_a_matrix_have_a_positive_diagonal() -> None:
    thin = A[:, :2] * [1, -1]
    values = []
    for name in ("qr_thin_Q", "qr_thin_R"):
        scope = evaluation.StanScope({}, {"x": thin})
        read = form.Expr(form.ExprKind.NAME, "x", 0, (), form.Leaf.MATRIX, 0, True, 0, "")
        values.append(scope.value(form.Expr(form.ExprKind.CALL, name, 0, (read,), form.Leaf.MATRIX, 0, True, 0, "")))
    np.testing.assert_allclose(values[0] @ values[1], thin, atol=1e-12)
    assert np.all(np.diagonal(values[1]) > 0)


# -- loops ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BATCHED)
def test_loops_that_are_batched_compute_what_their_turns_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batched = declared(converted(name))
    monkeypatch.setattr(evaluation, "FEWEST_TURNS", 10**9)
    apart = declared(converted(name))
    assert len(batched[0].nodes) < len(apart[0].nodes)
    point = references(name)["points"][1]
    for a, b in zip(interpreted(*batched[:2], [*batched[2:]], point), interpreted(*apart[:2], [*apart[2:]], point)):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["arma", "garch", "hidden_markov"])
def test_recurrences_that_are_scanned_compute_what_their_turns_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    apart = declared(converted(name))
    monkeypatch.setattr(evaluation, "FEWEST_SCANNED", 3)
    scanned = declared(converted(name))
    assert len(scanned[0].nodes) < len(apart[0].nodes)
    assert any(node.op.name == "scan" for node in scanned[0].nodes)
    point = references(name)["points"][1]
    for a, b in zip(interpreted(*scanned[:2], [*scanned[2:]], point), interpreted(*apart[:2], [*apart[2:]], point)):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_a_batched_loop_has_as_many_nodes_for_many_turns() -> None:
    data = dict(references("varying_slopes")["data"])
    few = len(declared(Model(form.read(form_of("varying_slopes")), data, StanDialect()))[0].nodes)
    data |= {"N": 500, **{key: [*data[key], *[1.0] * 485] for key in ("x", "y")}, "group": [*data["group"], *[2] * 485]}
    assert len(declared(Model(form.read(form_of("varying_slopes")), data, StanDialect()))[0].nodes) == few


def test_elements_are_read_as_they_were_assigned_last() -> None:
    rng = np.random.default_rng(0)
    with sg.Graph() as graph:
        x = sg.placeholder((12,), sg.float64)
        array, expected, reads = StanArray((4, 3)), np.full((4, 3), np.nan), []
        for turn in range(60):
            point, column = int(rng.integers(12)), int(rng.integers(3))
            match turn % 6:
                case 0 if turn % 12 == 0:
                    array.write([], sg.reshape(x, (4, 3)) * turn)
                    expected = (np.arange(12.0) * turn).reshape(4, 3)
                case 1 | 2 | 3:
                    array.write([point // 3, point % 3], x[point] + turn)
                    expected[point // 3, point % 3] = point + turn
                case 4:
                    array.write([slice(1, 3), column], x[:2] - turn)
                    expected[1:3, column] = np.arange(2.0) - turn
            rows = int(rng.integers(1, 5))
            index = [slice(0, rows)] if turn % 2 else [np.array([3, 0, 3]), column]
            wanted = expected[index[0]] if turn % 2 else expected[index[0], column]
            reads.append((array.read(index), wanted.copy()))
        values = interpreted(graph, x, [tensor(read) for read, _ in reads], np.arange(12.0))
    for value, (_, wanted) in zip(values, reads, strict=True):
        np.testing.assert_array_equal(value, wanted)


def test_what_was_joined_is_forgotten_where_an_array_is_assigned_as_a_whole() -> None:
    with sg.Graph() as graph:
        x = sg.placeholder((12,), sg.float64)
        array, reads = StanArray((12,)), []
        for factor in (1.0, 2.0):
            array.write([], x)
            for point in range(12):
                array.write([point], x[point] * factor)
            reads += [array.read([slice(0, 10)]), array.read([slice(0, 8)]), array.read([slice(0, 12)])]
        values = interpreted(graph, x, [tensor(read) for read in reads], np.arange(12.0))
    for value, (factor, count) in zip(values, [(f, n) for f in (1.0, 2.0) for n in (10, 8, 12)], strict=True):
        np.testing.assert_array_equal(value, np.arange(count) * factor)


# -- compiled ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def schools() -> sgstan.StanModel:
    return sgstan.compile(form_of(SCHOOLS), references(SCHOOLS)["data"])


def test_a_compiled_model(schools: sgstan.StanModel) -> None:
    expected = references(SCHOOLS)
    assert schools.n_dim == 10
    assert schools.unconstrained_names == ["mu", "tau", *(f"raw.{k}" for k in range(1, 9))]
    x = np.array(expected["points"][0])
    value, gradient = schools.logp_and_gradient(x)
    assert math.isclose(value, expected["values"][0], rel_tol=1e-12)
    assert schools.logp(x) == value
    np.testing.assert_allclose(gradient, expected["gradients"][0], rtol=1e-10)
    out, slots = np.zeros(()), np.zeros(10)
    assert schools.cfunc().ctypes(10, x.ctypes.data, slots.ctypes.data, out.ctypes.data, None) == 0
    assert float(out) == value
    with pytest.raises(sg.StaticGradError, match=r"expected a vector of 10 numbers, actual \(3,\)"):
        schools.logp(np.zeros(3))


def test_draws_of_a_compiled_model(schools: sgstan.StanModel) -> None:
    expected = references(SCHOOLS)
    draw = schools.constrain(expected["points"][0])
    assert schools.names == ["mu", "tau", "raw", "theta"]
    assert schools.shapes["theta"] == (8,)
    np.testing.assert_allclose(draw["theta"], draw["mu"] + draw["tau"] * draw["raw"], rtol=1e-14)
    start = schools.initial_point(3)
    assert np.all(np.abs(start) <= 2)
    assert np.isfinite(schools.logp(start))


def test_other_data(schools: sgstan.StanModel) -> None:
    data = references(SCHOOLS)["data"]
    other = schools.with_data(y=[0.0] * 8)
    x = np.zeros(10)
    change = sum(-0.5 * (0.0 / s) ** 2 + 0.5 * (y / s) ** 2 for y, s in zip(data["y"], data["sigma"], strict=True))
    assert math.isclose(other.logp(x) - schools.logp(x), change, rel_tol=1e-12)
    with pytest.raises(sg.StaticGradError, match="no data of the name z"):
        schools.with_data(z=1)


def test_what_a_trace_leaves_out() -> None:
    model = converted("eight_schools")
    with sg.Graph():
        found = model.quantities(sg.placeholder((model.n,), sg.float64))
    assert list(found) == ["mu", "tau", "theta", "pooling"]
    assert model.left_out == {"replicated": "normal_rng: it is drawn at random"}


# -- what is refused --------------------------------------------------------------------------------------------------


def test_refused_functions_are_listed_with_their_lines() -> None:
    program, data = form.read(form_of(REFUSED)), references(REFUSED)["data"]
    with pytest.raises(sg.UnsupportedError, match="solvers of differential") as caught:
        Model(program, data, StanDialect(code_of(REFUSED), "lynxes.stan"))
    (op,) = caught.value.ops
    (source,) = op.sources
    assert (op.name, op.count) == ("ode_rk45", 1)
    assert "ode_rk45" in code_of(REFUSED).splitlines()[source.line - 1]


@pytest.mark.parametrize("name", REFUSED_LATER)
def test_what_only_the_conversion_finds_is_refused_with_its_line(name: str) -> None:
    reason, line = REFUSED_LATER[name]
    model = Model(form.read(form_of(name)), {}, StanDialect(code_of(name), "steps.stan"))
    with pytest.raises(sg.UnsupportedError, match=reason) as caught:
        declared(model)
    assert caught.value.source is not None
    assert line in code_of(name).splitlines()[caught.value.source.line - 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"J": None}, "the data have no 'J'"),
        ({"y": [1.0, 2.0]}, r"y: expected the shape \(8,\), actual \(2,\)"),
        ({"J": 8.5}, "J: expected integers"),
        ({"sigma": [1.0] * 7 + [-1.0]}, "sigma: expected lower bound 0"),
        ({"sigma": ["a"] * 8}, "sigma: expected numbers"),
    ],
)
def test_data_that_do_not_fit(changes: dict[str, Any], message: str) -> None:
    data = {k: v for k, v in {**references(SCHOOLS)["data"], **changes}.items() if v is not None}
    with pytest.raises(sg.StaticGradError, match=message):
        Model(form.read(form_of(SCHOOLS)), data, StanDialect())


def test_indices_out_of_range_are_found_when_the_program_is_converted() -> None:
    data = {**references("logistic_loop")["data"], "G": 2, "group": [1] * 15 + [3]}
    with pytest.raises(sg.StaticGradError, match="group: expected upper bound 2"):
        Model(form.read(form_of("logistic_loop")), data, StanDialect())


@pytest.mark.parametrize("text", ["STANLI3:AAAA", "STANLI2:AAAA", "STANLI2:!", form_of(SCHOOLS)[:-400]])
def test_damaged_forms(text: str) -> None:
    with pytest.raises(sg.FormatError, match="intermediate form"):
        form.read(text)


@pytest.mark.parametrize("version", ["0.23.1", "0.25.0", "1.0.0"])
def test_another_stanli_is_refused_by_name(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("stanli")
    other.__version__ = version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "stanli", other)
    with pytest.raises(ImportError, match=rf"expected stanli 0\.24.*actual stanli {version}"):
        sgstan.compile("parameters { real x; } model { x ~ normal(0, 1); }")


def test_stanli_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stanli", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[stan\]'"):
        sgstan.compile("parameters { real x; } model { x ~ normal(0, 1); }")


@pytest.mark.parametrize("point", [[1.5, 0.0], [0.3, 3.0]])
def test_a_draw_that_stan_rejects_has_no_density(point: list[float]) -> None:
    graph, x, value, _ = declared(converted("rejecting"))
    assert interpreted(graph, x, [value], point)[0] == -np.inf


# -- with stanli and nutpie -------------------------------------------------------------------------------------------


def test_forms_are_those_that_stanli_gives() -> None:
    stanli = pytest.importorskip("stanli", reason="stanli is not installed")
    if not stanli.__version__.startswith("0.24."):
        pytest.skip(f"stanli is {stanli.__version__}")
    for name in (*NAMES, *APPROXIMATE, REFUSED, *REFUSED_LATER):
        assert stanli.stan_to_mir(code_of(name)) == form_of(name), f"{name}: run tests/make_stan.py"


def test_a_program_from_its_source(tmp_path: Path) -> None:
    pytest.importorskip("stanli", reason="stanli is not installed")
    path, data = tmp_path / "schools.stan", tmp_path / "schools.json"
    path.write_text(code_of(SCHOOLS))
    data.write_text(json.dumps(references(SCHOOLS)["data"]))
    expected = references(SCHOOLS)
    assert math.isclose(sgstan.compile(path, data).logp(expected["points"][1]), expected["values"][1], rel_tol=1e-12)
    with pytest.raises(sg.StaticGradError, match=r"(?s)stan: .*rael"):
        sgstan.compile("parameters { rael x; }")


def test_sampling(schools: sgstan.StanModel) -> None:
    nutpie = pytest.importorskip("nutpie", reason="nutpie is not installed")
    trace = nutpie.sample(schools, draws=600, tune=300, chains=2, cores=1, seed=1, progress_bar=False)
    posterior = trace.posterior
    assert set(posterior.data_vars) == {"mu", "tau", "raw", "theta"}
    assert posterior["theta"].shape == (2, 600, 8)
    assert abs(float(posterior["mu"].mean()) - 4.4) < 0.8
    assert abs(float(posterior["tau"].mean()) - 3.6) < 1.0
