"""Functions of libraries written for JAX, as their users write them, which are compared with what staticgrad makes of
them.

Each is entered under its library as a function that imports it and gives a function of JAX and its arguments: nests of
arrays, of which floating ones are float64. A second round has float32, save for functions that decide by small
differences, such as the steps of an adaptive solver, and for those with float64 of their own, which JAX itself refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Made = tuple[Callable[..., Any], Sequence[Any]]


@dataclass(frozen=True)
class LibraryCase:
    """A function of a library. ``derived`` is False where JAX has no gradient of it, ``decides`` True where results
    jump with small differences, ``wide`` where it has data in float64 that JAX combines with no float32."""

    library: str
    make: Callable[[], Made]
    derived: bool
    decides: bool
    wide: bool


CASES: dict[str, LibraryCase] = {}


def case(
    library: str, name: str = "", *, derived: bool = True, decides: bool = False, wide: bool = False
) -> Callable[[Any], Any]:
    """Enter what makes a function and its arguments."""

    def enter(make: Callable[[], Made]) -> Callable[[], Made]:
        CASES[f"{library} {name or make.__name__}"] = LibraryCase(library, make, derived, decides, wide)
        return make

    return enter


def draws(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).normal(size=shape)


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).uniform(0.3, 2.0, size=shape)


REALS, SHIFTS, SCALES, RATES = draws(5), 0.3 * draws(5, seed=3), positive(5), positive(5, seed=1) + 1
UNITS, COUNTS = np.array([0.1, 0.4, 0.8, 0.3, 0.6]), np.array([0, 1, 3, 2, 5])
MATRIX = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 1.5]])
KEY = np.array([0, 7], np.uint32)


def each(functions: dict[str, tuple[Any, ...]]) -> Made:
    """Functions of a table, each with its arguments, as one of a nest of all arguments."""

    def all_of(args: dict[str, Sequence[Any]]) -> dict[str, Any]:
        return {name: row[0](*args[name]) for name, row in functions.items()}

    return all_of, [{name: [np.asarray(x) for x in row[1:]] for name, row in functions.items()}]


# -- flax -------------------------------------------------------------------------------------------------------------


def applied(module: Any, x: np.ndarray, mutable: Any = False, **named: Any) -> Made:
    """A module of flax.linen as a function of its variables and the input."""
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    variables = module.init(keys, jnp.asarray(x), **named)
    variables = jax.tree.map(lambda leaf: np.asarray(leaf, x.dtype), variables)
    return lambda variables, x: module.apply(variables, x, mutable=mutable, **named), [variables, x]


@case("flax")
def perceptron() -> Made:
    from flax import linen as nn

    return applied(nn.Sequential([nn.Dense(8), nn.tanh, nn.Dense(4), nn.PReLU(), nn.Dense(3), nn.swish]), draws(4, 5))


def _pictures(train: bool) -> Made:
    from flax import linen as nn

    class Classifier(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.BatchNorm(use_running_average=not train)(nn.Conv(4, (3, 3))(x)))
            x = nn.Conv(4, (3, 3), strides=2, padding="VALID")(nn.avg_pool(x, (2, 2), strides=(2, 2)))
            return nn.Dense(3)(x.reshape(x.shape[0], -1))

    return applied(Classifier(), draws(2, 8, 8, 3), ["batch_stats"] if train else False)


@case("flax")
def batch_norm_in_training() -> Made:
    return _pictures(True)


@case("flax")
def batch_norm_in_evaluation() -> Made:
    return _pictures(False)


@case("flax")
def transformer() -> Made:
    from flax import linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
            attention = nn.MultiHeadDotProductAttention(num_heads=2, dropout_rate=0.5, deterministic=True)
            x = x + attention(nn.LayerNorm()(x), mask=mask)
            y = nn.gelu(nn.Dense(16)(nn.LayerNorm()(x)))
            return x + nn.Dense(8)(nn.Dropout(0.3, deterministic=True)(y))

    return applied(Block(), draws(2, 5, 8))


@case("flax")
def recurrent() -> Made:
    from flax import linen as nn

    cells = nn.LSTMCell(3, param_dtype=jnp.float64), nn.GRUCell(3, param_dtype=jnp.float64)
    return applied(nn.Bidirectional(*map(nn.RNN, cells)), draws(2, 5, 3))


@case("flax")
def embedding() -> Made:
    from flax import linen as nn

    module, ids = nn.Embed(7, 4), np.array([[1, 2, 6], [0, 2, 2]], np.int32)

    def logits(table: Any, ids: Any) -> Any:
        parameters = {"params": {"embedding": table}}
        return module.apply(parameters, jnp.tanh(module.apply(parameters, ids)), method=module.attend)

    return logits, [draws(7, 4), ids]


@case("flax")
def norms() -> Made:
    from flax import linen as nn

    layers = [nn.Dense(8), nn.RMSNorm(), nn.Dense(8), nn.GroupNorm(2), nn.InstanceNorm(), nn.WeightNorm(nn.Dense(3))]
    return applied(nn.Sequential(layers), draws(2, 5, 4))


@case("flax")
def layers_by_scan() -> Made:
    from flax import linen as nn

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x: Any, _: Any) -> Any:
            return jnp.tanh(nn.Dense(4)(x)), jnp.sum(x)

    class Layers(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            stacked = nn.scan(nn.remat(Layer), variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
            return stacked()(x, None)

    return applied(Layers(), draws(2, 4))


@case("flax")
def module_of_nnx() -> Made:
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.conv = nnx.Conv(3, 4, (3, 3), rngs=rngs)
            self.norm = nnx.BatchNorm(4, rngs=rngs)
            self.out = nnx.Linear(4 * 36, 2, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.out(nnx.relu(self.norm(self.conv(x))).reshape(x.shape[0], -1))

    definition, state = nnx.split(Net(nnx.Rngs(0)))
    leaves, tree = jax.tree.flatten(state)

    def forward(x: Any, leaves: Any) -> Any:
        net = nnx.merge(definition, jax.tree.unflatten(tree, leaves))
        return net(x), jax.tree.leaves(nnx.state(net))

    return forward, [draws(2, 6, 6, 3), [np.asarray(leaf, np.float64) for leaf in leaves]]


# -- Diffrax ----------------------------------------------------------------------------------------------------------


def prey(t: Any, y: Any, args: Any) -> Any:
    return jnp.stack([args[0] * y[0] * (1 - y[1]), y[1] * (y[0] - args[1])])


def van_der_pol(t: Any, y: Any, args: Any) -> Any:
    return jnp.stack([y[1], args[0] * ((1 - y[0] ** 2) * y[1] - y[0])])


def solved(solver: str, adjoint: str, *, adaptive: bool, slope: Any = prey, steps: int = 16) -> Made:
    import diffrax

    def states(y: Any, args: Any) -> Any:
        control = diffrax.PIDController(rtol=1e-4, atol=1e-6) if adaptive else diffrax.ConstantStepSize()
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(slope), getattr(diffrax, solver)(), 0.0, 0.5, 0.1, y, args, max_steps=steps,
            stepsize_controller=control, adjoint=getattr(diffrax, adjoint)(),
            saveat=diffrax.SaveAt(ts=jnp.linspace(0, 0.5, 3)),
        )  # fmt: skip
        return solution.ys

    return states, [np.array([1.2, 0.7]), np.array([1.1, 0.8])]


for _solver, _adjoint, _adaptive, _slope in (
    ("Euler", "RecursiveCheckpointAdjoint", False, prey),
    ("Heun", "RecursiveCheckpointAdjoint", True, prey),
    ("Tsit5", "RecursiveCheckpointAdjoint", True, prey),
    ("Tsit5", "BacksolveAdjoint", True, prey),
    ("Dopri5", "DirectAdjoint", False, prey),
    ("Dopri5", "DirectAdjoint", True, prey),
    ("Kvaerno3", "RecursiveCheckpointAdjoint", True, van_der_pol),
    ("Kvaerno5", "DirectAdjoint", True, van_der_pol),
):
    _name = f"{_solver} {'adaptive' if _adaptive else 'constant'} {_adjoint}"
    case("diffrax", _name, decides=_adaptive)(
        lambda s=_solver, d=_adjoint, a=_adaptive, f=_slope: solved(s, d, adaptive=a, slope=f, steps=32)
    )


# -- NumPyro ----------------------------------------------------------------------------------------------------------


@case("numpyro")
def log_probabilities() -> Made:
    from numpyro import distributions as d

    def of(make: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, *parameters: make(*parameters).log_prob(x)

    rows: dict[str, tuple[Any, ...]] = {
        "AsymmetricLaplace": (d.AsymmetricLaplace, REALS, SHIFTS, SCALES, RATES),
        "Bernoulli": (lambda p: d.Bernoulli(probs=p), [0, 1, 1, 0, 1], UNITS),
        "Beta": (d.Beta, UNITS, SCALES, RATES),
        "BetaBinomial": (lambda a, b: d.BetaBinomial(a, b, 6), COUNTS, SCALES, RATES),
        "Binomial": (lambda p: d.Binomial(6, logits=p), COUNTS, REALS),
        "Categorical": (lambda p: d.Categorical(logits=p), [0, 2, 1], draws(3, 4)),
        "Cauchy": (d.Cauchy, REALS, SHIFTS, SCALES),
        "Chi2": (d.Chi2, SCALES, RATES),
        "Dirichlet": (d.Dirichlet, [0.2, 0.5, 0.3], positive(3)),
        "DirichletMultinomial": (lambda c: d.DirichletMultinomial(c, 6), [1, 2, 3], positive(3)),
        "Exponential": (d.Exponential, SCALES, RATES),
        "Gamma": (d.Gamma, SCALES, SCALES, RATES),
        "GammaPoisson": (d.GammaPoisson, COUNTS, SCALES, RATES),
        "GaussianRandomWalk": (lambda s: d.GaussianRandomWalk(s, 5), REALS, 0.8),
        "Gumbel": (d.Gumbel, REALS, SHIFTS, SCALES),
        "HalfCauchy": (d.HalfCauchy, SCALES, RATES),
        "HalfNormal": (d.HalfNormal, SCALES, RATES),
        "InverseGamma": (d.InverseGamma, SCALES, SCALES, RATES),
        "Kumaraswamy": (d.Kumaraswamy, UNITS, SCALES, RATES),
        "LKJCholesky": (lambda c: d.LKJCholesky(3, c), np.linalg.cholesky(MATRIX / 2 + np.diag([0, 0.5, 0.25])), 1.7),
        "Laplace": (d.Laplace, REALS, SHIFTS, SCALES),
        "LogNormal": (d.LogNormal, SCALES, SHIFTS, RATES),
        "Logistic": (d.Logistic, REALS, SHIFTS, SCALES),
        "LowRankMultivariateNormal": (
            d.LowRankMultivariateNormal, draws(4), draws(4, seed=1), draws(4, 2), positive(4),
        ),
        "MixtureSameFamily": (
            lambda p: d.MixtureSameFamily(d.Categorical(logits=p), d.Normal(jnp.arange(3.0), 1.0)), REALS, draws(3),
        ),
        "Multinomial": (lambda p: d.Multinomial(6, logits=p), [[1, 2, 3, 0]], draws(1, 4)),
        "MultivariateNormal": (
            lambda m, a: d.MultivariateNormal(m, covariance_matrix=a @ a.T + jnp.eye(3)),
            draws(3), draws(3, seed=1), draws(3, 3),
        ),
        "NegativeBinomial2": (d.NegativeBinomial2, COUNTS, SCALES, RATES),
        "Normal": (d.Normal, REALS, SHIFTS, SCALES),
        "OrderedLogistic": (lambda p: d.OrderedLogistic(p, jnp.array([-1.0, 0.0, 1.0])), [0, 2, 3, 1, 0], REALS),
        "Pareto": (d.Pareto, SCALES + 2, 0.5 * SCALES, RATES),
        "Poisson": (d.Poisson, COUNTS, SCALES),
        "StudentT": (d.StudentT, REALS, RATES, SHIFTS, SCALES),
        "TruncatedNormal": (lambda m, s: d.TruncatedNormal(m, s, low=-1.0, high=2.0), UNITS, SHIFTS, SCALES),
        "VonMises": (d.VonMises, REALS, SHIFTS, SCALES),
        "Weibull": (d.Weibull, SCALES, SCALES, RATES),
        "Wishart": (lambda c: d.Wishart(c + 3, jnp.asarray(MATRIX)), MATRIX + np.eye(3), 1.7),
        "ZeroInflatedPoisson": (d.ZeroInflatedPoisson, COUNTS, UNITS, SCALES),
    }  # fmt: skip
    return each({name: (of(make), *args) for name, (make, *args) in rows.items()})


def potential(model: Callable[..., None], *args: Any) -> Made:
    """The potential energy of a model in the space without constraints."""
    from numpyro.infer.util import initialize_model

    info = initialize_model(jax.random.key(0), model, model_args=args)
    leaves, tree = jax.tree.flatten(info.param_info.z)
    start = [np.asarray(leaf, np.float64) * 0.5 + 0.1 for leaf in leaves]
    return lambda leaves: info.potential_fn(jax.tree.unflatten(tree, leaves)), [start]


@case("numpyro")
def schools() -> Made:
    import numpyro
    from numpyro import distributions as d

    def model(y: Any, sigma: Any) -> None:
        mu, tau = numpyro.sample("mu", d.Normal(0, 5)), numpyro.sample("tau", d.HalfCauchy(5))
        with numpyro.plate("school", 8):
            theta = numpyro.sample("theta", d.Normal(mu, tau))
        numpyro.sample("y", d.Normal(theta, sigma), obs=y)

    y = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    return potential(model, y, jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]))


@case("numpyro", wide=True)
def correlated_slopes() -> Made:
    import numpyro
    from numpyro import distributions as d

    def model(x: Any, y: Any) -> None:
        factor = numpyro.sample("factor", d.LKJCholesky(3, 2.0))
        slopes = numpyro.sample("slopes", d.MultivariateNormal(jnp.zeros(3), scale_tril=factor))
        weights = numpyro.sample("weights", d.Dirichlet(jnp.ones(3)))
        noise = numpyro.sample("noise", d.InverseGamma(2.0, 1.0))
        numpyro.sample("y", d.Normal(x @ (slopes * weights), noise), obs=y)

    return potential(model, jnp.asarray(draws(6, 3)), jnp.asarray(draws(6)))


@case("numpyro", wide=True)
def time_series() -> Made:
    import numpyro
    from numpyro import distributions as d
    from numpyro.contrib.control_flow import scan

    def model(y: Any) -> None:
        factor, noise = numpyro.sample("factor", d.Uniform(-1, 1)), numpyro.sample("noise", d.Exponential(1.0))

        def step(state: Any, seen: Any) -> Any:
            state = numpyro.sample("state", d.Normal(factor * state, noise))
            numpyro.sample("seen", d.Normal(state, 0.5), obs=seen)
            return state, None

        scan(step, jnp.zeros(()), y)

    return potential(model, jnp.asarray(draws(6)))


# -- BlackJAX ---------------------------------------------------------------------------------------------------------


def log_density(x: Any) -> Any:
    return -0.5 * jnp.sum((x - jnp.array([0.3, -0.2, 1.0])) ** 2 / jnp.array([1.0, 0.5, 2.0])) - 0.1 * jnp.sum(x**4)


def chain(make: Callable[[Any, Any], Any], steps: int = 3) -> Made:
    """The states of a chain, and what its kernel says of each step."""

    def states(x: Any, scale: Any, key: Any) -> Any:
        import blackjax

        kernel = make(blackjax, scale)
        state, found = kernel.init(x), []
        for each_key in jax.random.split(jax.random.wrap_key_data(key), steps):
            state, info = kernel.step(each_key, state)
            found.append((state, info))
        return found

    return states, [draws(3), np.array([0.7, 1.3, 0.9]), KEY]


@case("blackjax", decides=True)
def hamiltonian() -> Made:
    named = {"step_size": 0.3, "num_integration_steps": 5}
    return chain(lambda bj, scale: bj.hmc(log_density, inverse_mass_matrix=scale, **named))


@case("blackjax", derived=False, decides=True)
def no_u_turn() -> Made:
    named = {"step_size": 0.3, "max_num_doublings": 5}
    return chain(lambda bj, scale: bj.nuts(log_density, inverse_mass_matrix=scale, **named), 2)


@case("blackjax", decides=True)
def langevin() -> Made:
    return chain(lambda bj, scale: bj.mala(log_density, step_size=0.3))


@case("blackjax", decides=True)
def random_walk() -> Made:
    walk = lambda bj, scale: bj.mcmc.random_walk.normal(0.3 * scale)  # noqa: E731
    return chain(lambda bj, scale: bj.additive_step_random_walk(log_density, walk(bj, scale)))


@case("blackjax", derived=False, decides=True)
def elliptical_slice() -> Made:
    named = {"mean": jnp.zeros(3), "cov": 2 * jnp.eye(3)}
    return chain(lambda bj, scale: bj.elliptical_slice(log_density, **named))


# -- Distrax ----------------------------------------------------------------------------------------------------------


@case("distrax")
def distributions() -> Made:
    import distrax as d

    def of(make: Callable[..., Any]) -> Callable[..., Any]:
        def all_of(x: Any, *parameters: Any) -> Any:
            made = make(*parameters)
            return made.log_prob(x), made.entropy(), made.mode()

        return all_of

    def probability(make: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, *parameters: make(*parameters).log_prob(x)

    return each({
        "Beta": (of(d.Beta), UNITS, RATES, RATES + 1),
        "Dirichlet": (of(d.Dirichlet), [0.2, 0.5, 0.3], positive(3) + 1),
        "Gumbel": (of(d.Gumbel), REALS, SHIFTS, SCALES),
        "Laplace": (of(d.Laplace), REALS, SHIFTS, SCALES),
        "Logistic": (of(d.Logistic), REALS, SHIFTS, SCALES),
        "MultivariateNormalTri": (
            of(d.MultivariateNormalTri), draws(3), draws(3, seed=1), np.tril(draws(3, 3)) + 2 * np.eye(3),
        ),
        "Normal": (of(d.Normal), REALS, SHIFTS, SCALES),
        "VonMises": (of(d.VonMises), REALS, SHIFTS, SCALES),
        "ClippedNormal": (
            probability(lambda m, s: d.ClippedNormal(m, s, -1.0, 1.0)), [-1.0, 0.5, 1.0, 0.2, 0.1], SHIFTS, SCALES,
        ),
        "Gamma": (probability(d.Gamma), SCALES, SCALES, RATES),
        "MixtureSameFamily": (
            probability(lambda p, m: d.MixtureSameFamily(d.Categorical(logits=p), d.Normal(m, 1.0))),
            REALS, draws(3), draws(3, seed=1),
        ),
        "Quantized": (
            probability(lambda m, s: d.Quantized(d.Logistic(m, s), low=-3, high=6)), COUNTS * 1.0, SHIFTS, SCALES,
        ),
    })  # fmt: skip


@case("distrax", decides=True)
def samples() -> Made:
    import distrax as d

    def of(make: Callable[..., Any]) -> Callable[..., Any]:
        return lambda key, *parameters: make(*parameters).sample_and_log_prob(
            seed=jax.random.wrap_key_data(key), sample_shape=(4,)
        )

    squashed = d.Chain([d.Tanh(), d.ScalarAffine(0.2, 0.5)])
    return each({
        "Categorical": (of(lambda p: d.Categorical(logits=p)), KEY, draws(3, 4)),
        "Gamma": (of(d.Gamma), KEY, SCALES, RATES),
        "Normal": (of(d.Normal), KEY, SHIFTS, SCALES),
        "Transformed": (of(lambda m, s: d.Transformed(d.Normal(m, s), squashed)), KEY, SHIFTS, SCALES),
    })  # fmt: skip


@case("distrax")
def bijectors() -> Made:
    import distrax as d

    def of(make: Callable[..., Any]) -> Callable[..., Any]:
        def both(x: Any, *parameters: Any) -> Any:
            made = make(*parameters)
            y, log_det = made.forward_and_log_det(x)
            return y, log_det, made.inverse_and_log_det(y)

        return both

    def coupling(p: Any) -> Any:
        affine = lambda q: d.ScalarAffine(q[..., 0], jnp.exp(q[..., 1]))  # noqa: E731
        return d.MaskedCoupling(jnp.arange(5) % 2 == 0, lambda x: jnp.outer(x, p) + p, affine)

    return each({
        "Chain": (of(lambda b: d.Block(d.Chain([d.ScalarAffine(b, 2.0), d.Tanh()]), 1)), [0.1, 0.4, 0.3], draws(3)),
        "DiagPlusLowRankLinear": (
            of(lambda a: d.DiagPlusLowRankLinear(2 * jnp.ones(3), a[:, :1], a[:, 1:2])), draws(2, 3), draws(3, 3),
        ),
        "Lambda": (of(lambda: d.Lambda(jnp.exp)), REALS),
        "MaskedCoupling": (of(coupling), REALS, draws(2)),
        "RationalQuadraticSpline": (of(lambda p: d.RationalQuadraticSpline(p, -2.0, 2.0)), REALS, draws(5, 13)),
        "ScalarAffine": (of(d.ScalarAffine), REALS, SHIFTS, SCALES),
        "Sigmoid": (of(d.Sigmoid), REALS),
        "UnconstrainedAffine": (
            of(lambda a, b: d.UnconstrainedAffine(a + 3 * jnp.eye(3), b)), draws(2, 3), draws(3, 3), draws(3),
        ),
    })  # fmt: skip


@case("distrax")
def hidden_markov() -> Made:
    import distrax as d

    def passes(start: Any, moves: Any, means: Any, seen: Any) -> Any:
        model = d.HMM(d.Categorical(logits=start), d.Categorical(logits=moves), d.Normal(means, jnp.ones(3)))
        return model.forward_backward(seen)

    return passes, [draws(3), draws(3, 3), draws(3, seed=2), draws(6)]


# -- JAX MD -----------------------------------------------------------------------------------------------------------


SIDE = 4.0
ATOMS = (1.3 * np.stack(np.meshgrid(*[np.arange(3.0)] * 3), -1).reshape(-1, 3) + 0.2 + 0.1 * draws(27, 3)) % SIDE


@case("jax_md")
def pairs() -> Made:
    from jax_md import energy, space

    apart, _ = space.periodic(SIDE)
    general, _ = space.periodic_general(SIDE)

    def of(name: str, apart: Any, **named: Any) -> Callable[..., Any]:
        return lambda x: getattr(energy, name)(apart, **named)(x)

    return each({
        "Lennard-Jones": (of("lennard_jones_pair", apart), ATOMS),
        "Lennard-Jones, free": (of("lennard_jones_pair", space.free()[0]), ATOMS),
        "Morse": (of("morse_pair", apart), ATOMS),
        "soft sphere": (lambda x, s: energy.soft_sphere_pair(apart, sigma=s, alpha=2.5)(x), ATOMS, 1.1),
        "soft sphere, general": (of("soft_sphere_pair", general, sigma=1.4), ATOMS / SIDE),
        "Stillinger-Weber": (of("stillinger_weber", apart), 1.9 * ATOMS % SIDE),
    })  # fmt: skip


def of_neighbours(name: str, form: str) -> Made:
    from jax_md import energy, partition, space

    named = {"format": getattr(partition, form), "r_cutoff": 1.5, "r_onset": 1.2, "dr_threshold": 0.2}
    lists, total = getattr(energy, name)(space.periodic(SIDE)[0], SIDE, **named)
    known = lists.allocate(jnp.asarray(ATOMS))

    def updated(x: Any) -> Any:
        found = known.update(x)
        return total(x, found), found.did_buffer_overflow

    return updated, [ATOMS]


@case("jax_md", wide=True)
def dense_neighbours() -> Made:
    return of_neighbours("lennard_jones_neighbor_list", "Dense")


@case("jax_md", wide=True)
def sparse_neighbours() -> Made:
    return of_neighbours("morse_neighbor_list", "Sparse")


@case("jax_md", decides=True)
def dynamics() -> Made:
    from jax_md import energy, simulate, space

    def path(x: Any, key: Any) -> Any:
        apart, shift = space.periodic(SIDE)
        start, step = simulate.nve(energy.soft_sphere_pair(apart, sigma=1.4), shift, 1e-3)
        state = start(jax.random.wrap_key_data(key), x, kT=0.1)
        state = lax.fori_loop(0, 4, lambda _, state: step(state), state)
        return state.position, state.momentum

    return path, [ATOMS, KEY]


# -- losses of Optax, sparse matrices of JAX ---------------------------------------------------------------------------


@case("optax", wide=True)
def losses() -> Made:
    import optax

    targets, labels = np.array([0, 3, 1], np.int32), np.array([[1, 2, 2], [3, 1, 0]], np.int32)
    pads = jnp.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    return each({
        "ctc": (lambda x, y: optax.ctc_loss(x, jnp.zeros((2, 6)), y, pads), draws(2, 6, 4), labels),
        "cosine": (optax.cosine_similarity, draws(3, 4), draws(3, 4, seed=1)),
        "focal": (lambda x, y: optax.sigmoid_focal_loss(x, jax.nn.one_hot(y, 4)), draws(3, 4), targets),
        "huber": (optax.huber_loss, draws(3, 4), draws(3, 4, seed=1)),
        "integer labels": (optax.softmax_cross_entropy_with_integer_labels, draws(3, 4), targets),
        "simplex": (optax.projections.projection_simplex, draws(4)),
    })  # fmt: skip


@case("jax", "sparse")
def sparse() -> Made:
    from jax.experimental import sparse

    places = jnp.array([[0, 1], [1, 0], [2, 2], [3, 1], [2, 0]])

    def products(data: Any, x: Any, y: Any) -> Any:
        m = sparse.BCOO((data, places), shape=(4, 3))
        rows = sparse.BCSR((data, jnp.array([0, 1, 2, 0, 2]), jnp.array([0, 2, 3, 5])), shape=(3, 3))
        each_row = jax.vmap(lambda v: m @ v)(y.T)
        return m @ x, m.T @ (m @ x), m @ y, each_row, m.todense(), (m * 2.0).sum(), rows @ x

    return products, [draws(5), draws(3), draws(3, 2)]
