"""Models composed at random from parts by a seed: what a seed chooses, and the model that comes of it.

Kernels are sums of products of parts, and what stands
around a process (groups, outputs, layers, drawn functions, functionals, masks, offsets) is chosen apart from it.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import constraints

import numpyro_gp as ngp
from numpyro_gp.arrays import value_type

ROWS, POINTS, LEVELS, GROUPS, STEPS = 12, 4, 3, 2, 3
CATEGORY = 2  # the column of codes beside two of numbers
JITTER = 1e-6

SMOOTH = ("RBF", "Matern52", "RationalQuadratic", "Periodic", "Cosine", "Linear", "Polynomial", "SpectralMixture")
KERNELS = (*SMOOTH, "Matern12", "Matern32", "ArcCosine", "Constant", "Gibbs", "Modulated", "CategoryDelta", "Coregion")
OF_CATEGORY = ("CategoryDelta", "Coregion")
REAL = ("gaussian", "student", "censored", "interval", "truncated", "closure")
ONE = (*REAL, "poisson", "bernoulli", "probit", "ordinal", "gamma", "exponential", "beta", "negative binomial")
COUPLED = ("coupled", "natural", "mean field", "conditional")
MEANS = ("decoupled", "hybrid", "orthogonal", "orthogonal natural")
LAYERS = ("layer gpcent", "layer gp", "layer cb")
# What a likelihood sees of which process; the beliefs of these are those that the recipes say they are for.
PROCESSES = {
    "one": (ONE, (*COUPLED, *MEANS, *LAYERS)),
    "groups": (ONE, (*COUPLED, *MEANS)),  # a process for each of them, at rows that all share
    "own rows": (ONE, COUPLED),  # each at rows of its own
    "named": (ONE, COUPLED),  # one for each group, rows name theirs
    "outputs": (("gaussian", "softmax", "poisson"), (*COUPLED, "orthogonal", "decoupled")),
    "two": (("heteroscedastic", "two functions"), (*COUPLED, "orthogonal")),
    "additive": (ONE, ("coupled", "natural", "conditional", "block diagonal", "structured", "block low rank")),
    "deep": (ONE, (*COUPLED, *LAYERS)),
    "drawn": (ONE, COUPLED),  # a drawn function is the mean of the process
    "scan": (ONE, COUPLED),  # a drawn function moves the inputs, step by step
    "latent": (REAL, COUPLED),  # a column that nobody measured
}
OF_MEMBERS = ("groups", "own rows", "named")
NOISY = ("deep", "drawn", "scan", "latent")  # that draw something in every step


class Composition(NamedTuple):
    """What a seed chooses; ``kernel`` is a sum of products of parts, each with its column."""

    seed: int
    process: str
    kernel: tuple[tuple[tuple[str, int], ...], ...]
    likelihood: str
    belief: str
    hyper: str
    rest: str
    mean: str
    reads: str  # what a row is of the function
    is_full: bool  # inducing inputs at all rows
    is_masked: bool
    has_offset: bool
    is_scaled: bool
    has_replicates: bool
    has_own_scale: bool  # a lengthscale for each group or output
    is_monotone: bool
    has_jitter: bool  # asked for, not found

    @property
    def has_noise(self) -> bool:
        """Whether something is drawn in every step."""
        return self.process in NOISY or self.rest == "normal"


def composition(seed: int) -> Composition:
    """The choices of a seed, the same in every process."""
    random = Random(seed)
    chance = lambda share: random.random() < share  # noqa: E731
    process = random.choice(("one",) * 4 + tuple(PROCESSES))
    likelihoods, beliefs = PROCESSES[process]
    reads = (
        random.choice(("values", "values", "slopes", "averages"))
        if process in ("one", "additive", "groups")
        else "values"
    )
    is_monotone = process == "one" and chance(0.15)
    names = SMOOTH if reads == "slopes" or is_monotone else KERNELS
    products = []
    for _ in range(random.randint(1, 2)):
        parts = [random.choice(names) for _ in range(random.randint(1, 2))]
        products.append(tuple((name, CATEGORY if name in OF_CATEGORY else random.randint(0, 1)) for name in parts))
    hyper = random.choice(("sampled", "sampled", "fixed", "param"))
    likelihood, belief = random.choice(likelihoods), random.choice(beliefs)
    found = Composition(
        seed,
        process,
        tuple(products),
        likelihood,
        belief,
        hyper,
        "normal" if hyper == "sampled" and chance(0.3) else "delta",
        random.choice(("none", "none", "number", "slope")),
        reads,
        is_full=process in ("one", "groups") and reads == "values" and chance(0.3),
        is_masked=chance(0.3),
        has_offset=chance(0.3),
        is_scaled=chance(0.2),
        has_replicates=process in ("one", "additive") and chance(0.2),
        has_own_scale=process in (*OF_MEMBERS, "outputs") and chance(0.5),
        is_monotone=is_monotone,
        has_jitter=chance(0.7),
    )
    if process != "one" or not chance(0.7):
        return found
    found = found._replace(
        rest="delta", has_replicates=False, is_monotone=False, has_jitter=True
    )  # as `dense.py` has it
    if not chance(0.3):
        return found._replace(likelihood="student" if likelihood == "closure" else likelihood)
    belief = random.choice(("coupled", "natural"))
    return found._replace(likelihood="gaussian", belief=belief, reads="values", is_full=True, is_scaled=False)


# ------------------------------------------------------------------------------------------------ the parts


@value_type()
class Delegating(ngp.beliefs.AbstractBelief):
    """A belief of the user's own with nothing but the three methods, which asks another for all of them."""

    inner: Any

    @property
    def whitened_mean(self) -> Any:
        return self.inner.whitened_mean

    def marginals(self, basis: Any, X: Any) -> Any:
        return self.inner.marginals(basis, X)

    def joint(self, basis: Any, X: Any) -> Any:
        return self.inner.joint(basis, X)

    def kl(self, basis: Any) -> Any:
        return self.inner.kl(basis)


def widening(X: Any) -> Any:
    """Logarithms of lengthscales."""
    return 0.3 * jnp.tanh(X) - 0.1


def swelling(X: Any) -> Any:
    """Amplitudes."""
    return 1.0 + 0.3 * jnp.sin(X[:, 0])


def part_of(name: str, scale: Any) -> Any:
    own = ngp.kernels
    made: dict[str, Callable[[], Any]] = {
        "RationalQuadratic": lambda: own.RationalQuadratic(1.0, scale, 1.5),
        "Periodic": lambda: own.Periodic(1.0, scale, 2.0),
        "Linear": lambda: own.Linear(0.3),
        "Polynomial": lambda: own.Polynomial(0.2, 0.5, 2),
        "Constant": lambda: own.Constant(1.0),
        "ArcCosine": lambda: own.ArcCosine(0.5),
        "SpectralMixture": lambda: own.SpectralMixture(
            jnp.array([0.6, 0.4]), jnp.full((2, 1), 0.3), jnp.full((2, 1), 0.2)
        ),
        "Gibbs": lambda: own.Gibbs(1.0, widening),
        "Modulated": lambda: own.Modulated(own.RBF(1.0, scale), swelling),
        "CategoryDelta": lambda: own.CategoryDelta(1.0),
        "Coregion": lambda: own.Coregion(jnp.array([[0.5], [-0.4], [0.8]]), jnp.array([0.5, 0.4, 0.3])),
    }
    return made[name]() if name in made else getattr(own, name)(1.0, scale)


def kernel_of(c: Composition, variance: Any, scale: Any) -> Any:
    """The sum of products, and a short kernel of the numbers, so that its matrix is far from singular."""
    total = 0.5 * ngp.kernels.RBF(1.0, 0.5).on([0, 1])
    for product in c.kernel:
        made = variance * ngp.kernels.Constant(1.0)
        for name, column in product:
            made = made * part_of(name, scale).on(column)
        total = total + made
    return total


def likelihood_of(name: str, noise: Any, rows: Mapping[str, Any]) -> Any:
    own, normal = ngp.likelihoods, ngp.likelihoods.Gaussian(noise)
    made: dict[str, Callable[[], Any]] = {
        "gaussian": lambda: normal,
        "student": lambda: own.StudentT(4.0, noise),
        "censored": lambda: own.Censored(normal, right=rows["beyond"]),
        "interval": lambda: own.Interval(normal, rows["lower"], rows["lower"] + 0.8),
        "truncated": lambda: own.Truncated(normal, low=-4.0),
        "closure": lambda: lambda f: dist.Laplace(f, noise + jnp.broadcast_to(jnp.abs(rows["lower"]), f.shape)),
        "poisson": own.Poisson,
        "bernoulli": own.Bernoulli,
        "probit": lambda: own.Bernoulli("probit"),
        "ordinal": lambda: own.Ordinal(jnp.array([-0.5, 0.6]), noise),
        "gamma": lambda: own.Gamma(1.0 + noise),
        "exponential": own.Exponential,
        "beta": lambda: own.Beta(1.0 + noise),
        "negative binomial": lambda: own.NegativeBinomial(1.0 + noise),
        "softmax": lambda: own.Softmax(2),
        "heteroscedastic": own.HeteroscedasticGaussian,
        "two functions": lambda: lambda f, g: dist.Normal(f, noise + jnp.exp(0.3 * g)),
    }
    return made[name]()


def recipe_of(kind: str, others: np.ndarray) -> Any:
    own = ngp.guides
    if kind.startswith("layer"):
        return own.decoupled_layer(others, mean=kind.removeprefix("layer "))
    if kind in ("natural", "orthogonal natural"):
        return own.coupled(natural=True) if kind == "natural" else own.orthogonal(others, natural=True)
    if kind in MEANS:
        return getattr(own, kind)(others)
    return getattr(own, kind.replace(" ", "_"))(*([1] if kind in ("structured", "block low rank") else []))


def slope(X: Any) -> Any:
    return 0.3 * X[..., 0]


def inputs_of(rng: np.random.Generator, count: int) -> np.ndarray:
    return np.c_[rng.normal(size=(count, 2)), rng.integers(0, LEVELS, count)]


def targets_of(c: Composition, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    if c.likelihood in ("poisson", "negative binomial"):
        return rng.poisson(2.0, shape)
    if c.likelihood in ("bernoulli", "probit", "ordinal", "softmax"):
        return rng.integers(0, 3 if c.likelihood == "ordinal" else 2, shape)
    if c.likelihood in ("gamma", "exponential"):
        return rng.gamma(2.0, size=shape)
    return rng.uniform(0.1, 0.9, shape) if c.likelihood == "beta" else rng.normal(size=shape)


# ------------------------------------------------------------------------------------------------ the model


@dataclass(frozen=True)
class Composed:
    """The model of a composition, a value that pickles; every array but ``Z`` has its rows first."""

    c: Composition

    def __call__(self, X, table, y=None, *, Z, batch=None):
        c = self.c
        variance, noise = self.number("variance", 0.8), self.number("noise", 0.6)
        with numpyro.plate("members", GROUPS) if c.has_own_scale and c.process == "outputs" else ExitStack():
            scale = None if c.has_own_scale and c.process in OF_MEMBERS else self.number("scale", 0.9)
        f = self.processes(variance, scale, Z)
        if c.is_monotone:
            ngp.functionals.monotone("up", f, jnp.c_[jnp.linspace(-1.0, 1.0, 3), jnp.zeros(3), jnp.zeros(3)])
        with numpyro.plate("data", X.shape[0], subsample_size=batch) as at, ExitStack() as around:
            own = {name: value[at] for name, value in table.items()}
            latent = self.at_rows(f, X[at], own)
            numpyro.deterministic("location", (latent[0] if isinstance(latent, tuple) else latent).mean)
            if c.process in ("groups", "own rows"):
                around.enter_context(numpyro.plate("groups", GROUPS, dim=-2))
            if c.has_replicates:
                around.enter_context(numpyro.plate("replicates", 2, dim=-2))
            if c.is_masked:
                around.enter_context(handlers.mask(mask=own["seen"]))
            if c.is_scaled:
                around.enter_context(handlers.scale(scale=2.5))
            given = None if y is None else y[at].T if self.is_wide else y[at]
            shape = (GROUPS, *at.shape) if c.process in ("groups", "own rows") else at.shape
            offset = jnp.broadcast_to(own["offset"], shape) if c.has_offset else None
            if c.has_offset and c.likelihood in ("two functions", "softmax"):
                offset = offset, None  # of the first: the second of two functions is the noise
            ngp.observe("y", latent, likelihood_of(c.likelihood, noise, own), obs=given, offset=offset)

    @property
    def is_wide(self) -> bool:
        """Whether the data have an axis on the left of that of rows."""
        return self.c.process in ("groups", "own rows") or self.c.has_replicates

    def number(self, name: str, start: float) -> Any:
        """A positive number in one of the three ways."""
        if self.c.hyper == "fixed":
            return jnp.asarray(start)
        if self.c.hyper == "param":
            return numpyro.param(name, jnp.asarray(start), constraint=constraints.positive)
        return numpyro.sample(name, dist.LogNormal(np.log(start), 0.5))

    def processes(self, variance: Any, scale: Any, Z: Any) -> Any:
        """Open the sites; what comes back is called at rows."""
        c, jitter = self.c, JITTER if self.c.has_jitter else None
        mean = {"none": None, "number": 0.4, "slope": slope}[c.mean]
        if c.process in OF_MEMBERS:
            with numpyro.plate("groups", GROUPS, dim=-2 if c.process != "named" else -1):
                scale = self.number("scale", 0.9) if scale is None else scale
                return ngp.gp("f", self.kernels(variance, scale), Z, mean=mean, jitter=jitter)
        kernel = self.kernels(variance, scale)
        if c.process == "outputs":
            return ngp.gp("f", kernel, Z, outputs=GROUPS, mean=mean, jitter=jitter)
        if c.process == "additive":
            parts = {"first": kernel, "second": ngp.kernels.Matern52(0.5, 0.8).on(1)}
            return ngp.additive_gp("f", parts, {key: Z for key in parts}, mean=mean, jitter=jitter)
        if c.process == "drawn":
            mean = ngp.gp("h", ngp.kernels.Matern52(0.5, 0.9).on([0, 1]), Z, jitter=jitter).function("h_draw", 16)
        if c.process == "latent":
            kernel, Z = kernel * ngp.kernels.RBF(1.0, 1.5).on(3), jnp.c_[Z, jnp.linspace(-1.0, 1.0, len(Z))]
        f = ngp.gp("f", kernel, Z, mean=mean, jitter=jitter)
        if c.process == "two":
            return f, ngp.gp("g", ngp.kernels.Matern52(0.5, 0.9).on([0, 1]), Z, jitter=jitter)
        if c.process in ("deep", "scan"):
            short = 0.2 * ngp.kernels.Matern52(1.0, 0.9).on([0, 1])
            inner = ngp.gp("h", short, Z, outputs=2 if c.process == "deep" else None, jitter=jitter)
            return f, inner if c.process == "deep" else inner.function("h_draw", 16)
        return f

    def kernels(self, variance: Any, scale: Any) -> Any:
        """The kernel, or one for each member or output."""
        shape = jnp.shape(scale)
        if not shape:
            return kernel_of(self.c, variance, scale)
        made = lambda one: kernel_of(self.c, variance, one)  # noqa: E731
        for _ in shape:
            made = jax.vmap(made)
        return made(scale)

    def at_rows(self, f: Any, X: Any, rows: Mapping[str, Any]) -> Any:
        """What the likelihood sees at rows."""
        c = self.c
        if c.reads == "slopes":
            return f(ngp.functionals.Derivative(X, 0))
        if c.reads == "averages":
            return f(ngp.functionals.Average(jnp.stack([X, X.at[..., 0].add(0.5)], axis=-2), jnp.array([0.3, 0.7])))
        if c.process == "own rows":
            return f(jnp.swapaxes(X, 0, 1))
        if c.process == "named":
            return f.at(rows["group"], X)
        if c.process == "two":
            return f[0](X), f[1](X)
        if c.process == "deep":
            moved = X[:, :2] + f[1].draw("jiggle", X)
            return f[0](jnp.c_[moved, X[:, 2:]])
        if c.process == "scan":
            step = lambda at, _: (at.at[:, 0].add(0.2 * f[1](at)), None)  # noqa: E731
            return f[0](jax.lax.scan(step, X, None, length=STEPS)[0])
        return f(ngp.latent_inputs("w", X)) if c.process == "latent" else f(X)
