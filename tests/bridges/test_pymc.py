"""PyMC's models as nutpie samples them: values and gradients, traces, data, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staticgrad as sg

models = pytest.importorskip("support.pymc_models", reason="PyMC is not installed", exc_type=ImportError)
nutpie = pytest.importorskip("nutpie")

import pymc as pm  # noqa: E402
import pytensor.tensor as pt  # noqa: E402
from pytensor.compile.mode import Mode  # noqa: E402
from pytensor.gradient import grad  # noqa: E402
from pytensor.graph.replace import clone_replace  # noqa: E402
from pytensor.graph.rewriting.utils import rewrite_graph  # noqa: E402

import staticgrad.pymc as sgpm  # noqa: E402
from staticgrad.bridges.pymc import hoistable  # noqa: E402
from staticgrad.compiler import binary as binaries  # noqa: E402

Array = np.ndarray[Any, Any]
QUICK = ("hierarchical", "mixture", "autoregressive")


@pytest.fixture
def nothing_compiles(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Called, it makes every further compilation fail."""

    def fail(*_: object) -> None:
        raise AssertionError("a program is compiled or loaded")

    return lambda: monkeypatch.setattr(binaries, "binary", fail)


def by_pytensor(model: Any) -> Callable[[Array], tuple[Any, Any]]:
    """Value and gradient by PyTensor's derivatives and its interpreter in Python."""
    values = [model.rvs_to_values[rv] for rv in model.free_RVs]
    logp = rewrite_graph(model.logp(), include=["canonicalize", "stabilize"])
    slopes = pt.concatenate([pt.as_tensor(slope).ravel() for slope in grad(logp, values)])
    point, x = model.initial_point(0), pt.dvector("x")
    pieces, at = {}, 0
    for v in values:
        shape = np.shape(point[v.name])
        pieces[v] = x[at : (at := at + int(np.prod(shape)))].reshape(shape)
    with model:
        function: Callable[[Array], tuple[Any, Any]] = pm.pytensorf.compile(
            [x], clone_replace([logp, slopes], pieces), mode=Mode("py", "fast_compile")
        )
    return function


def check_values(name: str, count: int) -> None:
    model = models.MODELS[name]()
    compiled, expected = sgpm.compile(model), by_pytensor(model)
    found = 0
    for x in models.points(model, count):
        value, gradient = compiled.logp_and_gradient(x)
        wanted, slopes = expected(x)
        if not np.isfinite(wanted):
            assert not np.isfinite(value)
            continue
        found += 1
        np.testing.assert_allclose(value, wanted, rtol=1e-10)
        np.testing.assert_allclose(gradient, slopes, rtol=1e-10, atol=1e-10 * np.abs(slopes).max())
    assert found > 0.9 * count


@pytest.mark.parametrize("name", QUICK)
def test_values_and_gradients_are_pytensors(name: str) -> None:
    check_values(name, 5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")
@pytest.mark.parametrize("name", models.MODELS)
def test_values_and_gradients_of_ten_models_are_pytensors(name: str) -> None:
    check_values(name, 100)


# -- traces -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def schools() -> Any:
    return models.MODELS["hierarchical"]()


@pytest.fixture(scope="module")
def compiled(schools: Any) -> Any:
    return sgpm.compile(schools)


def draw(compiled: Any, **options: Any) -> Any:
    given = {"draws": 30, "tune": 60, "chains": 2, "cores": 2, "seed": 4, "progress_bar": False} | options
    return nutpie.sample(compiled, **given)


def test_a_trace_has_the_variables_and_coordinates_of_the_model(compiled: Any) -> None:
    trace = draw(compiled, store_unconstrained=True, store_gradient=True)
    posterior, stats = trace.posterior, trace.sample_stats
    # Since 0.16.9 nutpie has transformed variables, if asked for them, in a group of their own.
    free = posterior if "tau_log__" in posterior else trace["unconstrained_posterior"]
    assert {*posterior.data_vars, *free.data_vars} == {"mu", "tau_log__", "eta", "tau", "theta"}
    assert posterior["theta"].dims == ("chain", "draw", "school")
    assert posterior["theta"].shape == (2, 30, 8)
    assert posterior["theta"].dtype == np.float64
    assert list(posterior["school"].values) == list("ABCDEFGH")
    np.testing.assert_allclose(posterior["tau"], np.exp(free["tau_log__"]), rtol=1e-14)
    np.testing.assert_allclose(
        posterior["theta"], posterior["mu"] + posterior["tau"] * posterior["eta"], rtol=1e-12, atol=1e-12
    )
    assert set(trace.warmup_posterior.data_vars) == set(posterior.data_vars)
    names = ["mu", "tau_log__", *(f"eta_{i}" for i in range(8))]
    assert list(stats["unconstrained_parameter"].values) == names
    for chain, number in ((0, 0), (1, 29)):
        at = stats["unconstrained_draw"].values[chain, number]
        assert at[0] == posterior["mu"].values[chain, number]
        value, gradient = compiled.logp_and_gradient(at)
        np.testing.assert_allclose(stats["logp"].values[chain, number], value, rtol=1e-12)
        np.testing.assert_allclose(stats["gradient"].values[chain, number], gradient, rtol=1e-12)


def test_a_seed_gives_the_same_trace_on_any_number_of_cores(compiled: Any) -> None:
    one, two = (draw(compiled, cores=cores).posterior for cores in (1, 2))
    for name in one.data_vars:
        np.testing.assert_array_equal(one[name].values, two[name].values)


def test_var_names_say_what_is_kept_and_chains_begin_where_they_shall(schools: Any) -> None:
    compiled = sgpm.compile(
        schools, var_names=["theta"], initial_points={"mu": 3.0, "tau": 2.0}, jitter_rvs=[],
    )  # fmt: skip
    assert compiled.shapes == {"mu": (), "tau_log__": (), "eta": (8,), "theta": (8,)}
    np.testing.assert_allclose(compiled.program.start(1), [3, np.log(2), *np.zeros(8)])
    np.testing.assert_array_equal(compiled.program.start(1), compiled.program.start(2))
    jittered = sgpm.compile(schools).program.start
    np.testing.assert_array_equal(jittered(1), jittered(1))
    assert np.all(jittered(1) != jittered(2))


# -- data -------------------------------------------------------------------------------------------------------------


def regression(rows: int = 40) -> Any:
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, 3))
    with pm.Model(coords={"column": ["a", "b", "c"]}) as model:
        pm.Data("x", x)
        pm.Data("y", rng.poisson(np.exp(0.5 * x[:, 0])))
        weights, scale = pm.Normal("weights", dims="column"), pm.HalfNormal("scale")
        pm.Deterministic("rate", pt.exp(model["x"] @ (scale * weights)))
        pm.Poisson("counts", model["rate"], observed=model["y"])
    return model


def agree(compiled: Any, model: Any) -> None:
    """The compiled model is the same as one compiled of this model."""
    other = sgpm.compile(model)
    assert compiled.shapes == other.shapes
    x = np.linspace(-0.5, 1, compiled.n_dim)
    for found, wanted in zip(compiled.logp_and_gradient(x), other.logp_and_gradient(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_other_data_compile_nothing(nothing_compiles: Callable[[], None]) -> None:
    model, other = regression(), regression()
    compiled = sgpm.compile(model)
    first = compiled.logp_and_gradient(np.ones(4))
    x, y = np.random.default_rng(1).normal(size=(40, 3)), np.arange(40) % 5
    with other:
        pm.set_data({"x": x, "y": y})
    expected = sgpm.compile(other).logp_and_gradient(np.ones(4))
    nothing_compiles()
    replaced = compiled.with_data(x=x, y=y.tolist())
    with model:
        pm.set_data({"y": y})
        half = compiled.logp_and_gradient(np.ones(4))
        pm.set_data({"x": x})
    assert half[0] not in (first[0], expected[0])
    for found in (compiled, replaced):
        value, gradient = found.logp_and_gradient(np.ones(4))
        np.testing.assert_allclose(value, expected[0], rtol=1e-13)
        np.testing.assert_allclose(gradient, expected[1], rtol=1e-13)
    trace = draw(replaced, draws=5, tune=20)
    np.testing.assert_allclose(
        trace.posterior["rate"].values[0, 0],
        np.exp(x @ (trace.posterior["scale"] * trace.posterior["weights"]).values[0, 0]),
    )
    with model:
        pm.set_data({"x": x[::-1].copy()})
    assert replaced.logp_and_gradient(np.ones(4))[0] == value, "with_data was overruled"


def test_data_of_other_sizes_compile_anew() -> None:
    model, larger = regression(40), regression(60)
    compiled = sgpm.compile(model)
    data = {name: larger[name].get_value() for name in ("x", "y")}
    replaced = compiled.with_data(**data)
    assert replaced.program is not compiled.program
    assert compiled.shapes["rate"] == (40,)
    agree(replaced, larger)
    with model:
        pm.set_data(data)
    agree(compiled, larger)
    assert draw(compiled, draws=3, tune=5).posterior["rate"].shape == (2, 3, 60)


def test_data_that_a_model_does_not_have_are_refused() -> None:
    compiled = sgpm.compile(regression())
    with pytest.raises(KeyError, match=r"'z' is none of the model's data: x, y"):
        compiled.with_data(z=1.0)
    with pytest.raises(ValueError, match=r"'x': expected 2 dimensions, actual shape \(3,\)"):
        compiled.with_data(x=np.ones(3))
    with pytest.raises(ValueError, match=r"'y': expected int\d+, actual float64"):
        compiled.with_data(y=np.full(40, 0.5))


def test_what_follows_from_data_alone_is_computed_once() -> None:
    """log(y!) of the Poisson counts, and the like, are no part of the C function."""
    compiled = sgpm.compile(regression())
    logp, x = compiled.logp.executable, np.ones(4)
    assert len(compiled.fed.arrays) > len(compiled.fed.data)
    value, gradient = logp(x, *compiled.fed.arrays)
    assert "lgamma" not in logp.text("kernels")
    found = compiled.logp_and_gradient(x)
    assert found[0] == value
    np.testing.assert_array_equal(found[1], gradient)


def test_hoistable_tensors_are_the_last_that_do_not_vary() -> None:
    with sg.Graph():
        x, a, b = sg.placeholder((3,), name="x"), sg.placeholder((3,), name="a"), sg.placeholder((2, 3), name="b")
        powers = sg.exp(a) + 1
        y = sg.sum(x * powers) + sg.sum(b.T @ sg.ones((2,)) * x) + sg.sum(a * x)
        z = sg.log(b)
        found = hoistable([y, z], x)
    assert {powers, z} < set(found)
    assert not {x, a, b} & set(found)
    assert len(found) == 3  # and the product of b


# -- what is refused --------------------------------------------------------------------------------------------------


def test_parameters_out_of_bounds_have_the_logp_minus_infinity() -> None:
    with pm.Model() as model:
        scale = pm.Normal("scale", 1)
        pm.Normal("y", 0, scale, observed=[1.0, 2.0])
    compiled, expected = sgpm.compile(model), by_pytensor(model)
    assert compiled.logp_and_gradient(np.array([-1.0]))[0] == -np.inf == expected(np.array([-1.0]))[0]
    for found, wanted in zip(compiled.logp_and_gradient(np.array([0.5])), expected(np.array([0.5])), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert (draw(compiled).posterior["scale"] > 0).all()


def test_models_without_gradients_are_refused() -> None:
    with pm.Model() as discrete:
        pm.Poisson("count", 3)
    with pytest.raises(sg.StaticGradError, match="discrete free variables have no gradient: count"):
        sgpm.compile(discrete)
    with pm.Model() as empty:
        pm.Data("x", [1.0])
    with pytest.raises(sg.StaticGradError, match="no free variables"):
        sgpm.compile(empty)


def test_vectors_of_other_lengths_are_refused(compiled: Any) -> None:
    with pytest.raises(sg.StaticGradError, match=r"expected a vector of 10 numbers, actual \(3,\)"):
        compiled.logp_and_gradient(np.zeros(3))


# -- beside numba -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of ArviZ and numba
@pytest.mark.parametrize("name", models.MODELS)
def test_posteriors_are_numbas(name: str) -> None:
    pytest.importorskip("numba")
    model = models.MODELS[name]()
    options = {"draws": 1000, "tune": 1000, "seed": 1}
    ours, theirs = (draw(compiled, **options) for compiled in (sgpm.compile(model), nutpie.compile_pymc_model(model)))
    assert ours.groups() == theirs.groups()
    for group in ours.groups():
        assert set(ours[group].variables) == set(theirs[group].variables)
        for variable in ours[group].variables:
            assert ours[group][variable].dims == theirs[group][variable].dims
            assert ours[group][variable].dtype == theirs[group][variable].dtype
        for coordinate in ours[group].coords:
            np.testing.assert_array_equal(ours[group][coordinate], theirs[group][coordinate])
    found, expected = models.moments(ours), models.moments(theirs)
    assert found.keys() == expected.keys()
    for what, (value, error) in found.items():
        wanted, other = expected[what]
        bound = 5.5 * np.hypot(error, other) + 1e-9  # hundreds of numbers are compared
        assert (np.abs(value - wanted) <= bound).all(), f"{what}: {value} and {wanted} ± {bound}"
