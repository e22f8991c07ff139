"""Functions of libraries written for JAX (Flax, Diffrax, NumPyro, BlackJAX, Distrax, JAX MD, Optax), converted, beside
JAX: values and gradients."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # read when JAX is imported
jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from support.jax_libraries import CASES, LibraryCase  # noqa: E402

import staticgrad as sg  # noqa: E402
from staticgrad.jax import convert  # noqa: E402

# XLA's text is run once: what it would cost to improve it is saved.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    with sg.Graph():
        yield


def is_floating(x: Any) -> bool:
    return bool(jnp.issubdtype(getattr(x, "dtype", np.dtype(type(x))), jnp.floating))


def named_leaves(nest: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(nest)[0]}


class Both:
    """A case with arguments of a dtype: its values and gradients by JAX and by staticgrad, by their names."""

    def __init__(self, case: LibraryCase, dtype: Any) -> None:
        self.case = case
        self.fn, args = case.make()
        leaves, self.tree = jax.tree.flatten(args)
        arrays = map(np.asarray, leaves)
        self.leaves = [a.astype(dtype) if a.dtype == np.float64 else a for a in arrays]
        self.moving = [n for n, a in enumerate(self.leaves) if is_floating(a)]
        types = jax.tree.leaves(jax.eval_shape(self.of_leaves, *self.leaves))
        rng = np.random.default_rng(1)
        self.cotangents = [rng.normal(size=t.shape).astype(t.dtype) for t in types if is_floating(t)]

    def of_leaves(self, *leaves: Any) -> Any:
        return self.fn(*jax.tree.unflatten(self.tree, leaves))

    def theirs(self) -> tuple[dict[str, Any], list[Any]]:
        def both(*leaves: Any) -> Any:
            def floating(*given: Any) -> Any:
                whole = dict(enumerate(leaves)) | dict(zip(self.moving, given))
                values = self.of_leaves(*(whole[n] for n in range(len(leaves))))
                return [y for y in jax.tree.leaves(values) if is_floating(y)], values

            if not self.case.derived:
                return self.of_leaves(*leaves), []
            _, pull, values = jax.vjp(floating, *(leaves[n] for n in self.moving), has_aux=True)
            return values, pull(self.cotangents)

        values, slopes = jax.jit(both, compiler_options=QUICK)(*map(jnp.asarray, self.leaves))
        return named_leaves(values), list(slopes)

    def ours(self) -> tuple[dict[str, Any], list[Any]]:
        xs = [sg.placeholder(a.shape, a.dtype) for a in self.leaves]
        values = convert(self.fn, max_steps=64)(*jax.tree.unflatten(self.tree, xs))
        floating = [y for y in jax.tree.leaves(values) if is_floating(y)]
        by = [xs[n] for n in self.moving]
        slopes = sg.gradients(floating, by, self.cotangents, unconnected_gradients="zero") if self.case.derived else []
        with sg.Session() as sess:
            return sess.run([named_leaves(values), slopes], dict(zip(xs, self.leaves, strict=True)))


# The share is one of the cases in float64 alone: with both dtypes as neighbours a commit might choose slow ones only.
ROUNDS = [
    pytest.param(np.float64, id="float64", marks=pytest.mark.share(2)),
    pytest.param(np.float32, id="float32", marks=pytest.mark.slow),
]


@pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types:FutureWarning")  # in JAX MD
@pytest.mark.parametrize("dtype", ROUNDS)
@pytest.mark.parametrize("name", CASES)
def test_functions_of_libraries_have_jax_s_values_and_gradients(name: str, dtype: Any) -> None:
    case = CASES[name]
    pytest.importorskip(case.library)
    if dtype == np.float32 and (case.decides or case.wide):
        pytest.skip("it decides by small differences" if case.decides else "JAX refuses it beside its own float64")
    both = Both(case, dtype)
    (values, slopes), (wanted, wanted_slopes) = both.ours(), both.theirs()
    assert values.keys() == wanted.keys()
    bound = 1e-12 if dtype == np.float64 else 1e-4
    for place, value in values.items():
        other = np.asarray(wanted[place])
        assert (value.dtype, value.shape) == (other.dtype, other.shape), place
        np.testing.assert_allclose(value, other, bound if is_floating(other) else 0, bound, err_msg=place)
    for number, (slope, other) in enumerate(zip(slopes, wanted_slopes, strict=True)):
        size = 1 + np.max(np.abs(other), initial=0)
        np.testing.assert_allclose(slope, other, 100 * bound, 100 * bound * size, err_msg=f"gradient {number}")


def test_samples_of_von_mises_are_not_derived_by_their_rule_as_in_jax() -> None:
    """Its rule reads what is computed around it, which JAX refuses of functions under ``jit`` as well."""
    distrax = pytest.importorskip("distrax")

    def drawn(scale: Any) -> Any:
        return distrax.VonMises(0.0, scale).sample(seed=jax.random.key(0))

    scale = sg.placeholder((), sg.float64)
    y = convert(drawn)(scale)
    np.testing.assert_allclose(sg.Session().run(y, {scale: 1.5}), drawn(1.5), rtol=1e-12)
    with pytest.raises(sg.UnsupportedError, match="its rule reads a value that is computed around it"):
        sg.gradients(y, scale)
