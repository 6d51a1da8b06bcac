"""The drawing of models: a description is a choice from finite sets and a seed of values, and `build` makes it run.

Sizes are the same for all descriptions, so that programs are shared and a compilation cache serves all of them.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from models.own_likelihood import ZeroInflatedPoisson
from numpyro_gp.arrays import value_type
from tests.contracts.descriptions import Description

ROWS, POINTS, COLUMNS, OUTPUTS, DRAWS, REPLICATES, GROUPS = 6, 3, 2, 2, 3, 2, 2
# A jitter that is asked for stays in predictions too, so that all answers are of one function.
JITTER = 1e-6
# Arguments of the models that have no row for each datum.
WITHOUT_ROWS = ("Z",)


@value_type()
class Tent(ngp.kernels.Kernel):
    """A kernel of the user's own: ``variance * prod_d exp(-|x_d - x'_d| / lengthscale_d)``."""

    variance: Any
    lengthscale: Any

    def _cross(self, X1: Any, X2: Any) -> Any:
        scale = jnp.broadcast_to(self.lengthscale, X1.shape[1:])[None]
        distance = jnp.sum(jnp.abs((X1 / scale)[:, None] - (X2 / scale)[None]), axis=-1)
        return self.variance * jnp.exp(-distance)

    def _diagonal(self, X: Any) -> Any:
        return jnp.broadcast_to(self.variance, X.shape[:1])


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


def delegating(name: str, prior: Any) -> Delegating:
    """The recipe of `Delegating`, with the parameters of ``coupled()``."""
    return Delegating(ngp.guides.coupled()(name, prior))


def kernel_of(kind: str, variance: Any, lengthscale: Any) -> Any:
    """A kernel of both columns."""
    if kind == "rbf":
        return ngp.kernels.RBF(variance, lengthscale)
    if kind == "sum":
        return 0.5 * ngp.kernels.Matern32(variance, lengthscale) + ngp.kernels.Linear(0.1 * variance).on(0)
    if kind == "class":
        return Tent(variance, lengthscale)
    return lambda X1, X2: Tent(variance, lengthscale).matrix(X1, X2)


def kernels_of(d: Description, variance: Any, lengthscale: Any) -> Any:
    """The kernel, or a batch of them: one for each group or output."""
    if d.kernels == "shared":
        return kernel_of(d.kernel, variance, lengthscale)
    return jax.vmap(lambda factor: kernel_of(d.kernel, factor * variance, lengthscale))(jnp.array([1.0, 0.6]))


def groups_of(d: Description) -> Any:
    """The plate of groups, where there is one."""
    return numpyro.plate("groups", GROUPS, dim=-2) if d.is_grouped else nullcontext()


def recipe_of(kind: str, seed: int) -> Any:
    """The recipe of one site."""
    others = np.random.default_rng(seed + 100).normal(size=(POINTS, COLUMNS))
    if kind in ("decoupled", "hybrid", "orthogonal", "decoupled layer"):
        return getattr(ngp.guides, kind.replace(" ", "_"))(others)
    if kind == "own":
        return delegating
    if kind in ("structured", "block low rank"):
        return getattr(ngp.guides, kind.replace(" ", "_"))(1)
    if kind == "natural":
        return ngp.guides.coupled(natural=True)
    return getattr(ngp.guides, kind.replace(" ", "_"))()


def hyperparameter(d: Description, name: str, start: float, columns: int | None = None) -> Any:
    """One positive number, or one for each column, in one of the three ways."""
    shape = () if columns is None else (columns,)
    if d.hyper == "fixed":
        return jnp.full(shape, start)
    if d.hyper == "param":
        return numpyro.param(name, jnp.full(shape, start), constraint=constraints.positive)
    if columns is None:
        return numpyro.sample(name, dist.LogNormal(np.log(start), 0.5))
    with numpyro.plate("columns", columns):
        return numpyro.sample(name, dist.LogNormal(np.log(start), 0.5))


def likelihood_of(d: Description, noise: Any, exposure: Any) -> Any:
    """The likelihood; those named as closures hold arrays, of which one has a row for each datum."""
    made = {
        "gaussian": lambda: ngp.likelihoods.Gaussian(noise),
        "student": lambda: ngp.likelihoods.StudentT(4.0, noise),
        "bernoulli": lambda: ngp.likelihoods.Bernoulli(),
        "probit": lambda: ngp.likelihoods.Bernoulli("probit"),
        "poisson": lambda: ngp.likelihoods.Poisson(),
        "gamma": lambda: ngp.likelihoods.Gamma(1.0 + noise),
        "exponential": lambda: ngp.likelihoods.Exponential(),
        "beta": lambda: ngp.likelihoods.Beta(1.0 + noise),
        "negative binomial": lambda: ngp.likelihoods.NegativeBinomial(1.0 + noise),
        "ordinal": lambda: ngp.likelihoods.Ordinal(jnp.array([-0.5, 0.6]), noise),
        "own": lambda: ZeroInflatedPoisson(0.5 * jnp.exp(-noise)),
        "softmax": lambda: ngp.likelihoods.Softmax(OUTPUTS),
        "robust max": lambda: ngp.likelihoods.RobustMax(OUTPUTS),
        "heteroscedastic": lambda: ngp.likelihoods.HeteroscedasticGaussian(),
        "scaled": lambda: ngp.likelihoods.Gaussian(noise * exposure),
        "closure": lambda: lambda f: dist.Normal(f, noise),
        "exposed": lambda: lambda f: dist.Poisson(jnp.broadcast_to(exposure, f.shape) * jnp.exp(f)),
        "two functions": lambda: lambda f, g: dist.Normal(f, noise + jnp.exp(0.3 * g)),
        "three functions": lambda: lambda f, g, h: dist.StudentT(4.0 + jnp.exp(h), f, noise + jnp.exp(0.3 * g)),
    }
    return made[d.likelihood]()


def slope(X: Any) -> Any:
    """A mean function."""
    return 0.3 * X[..., 0]


def open_processes(d: Description, name: Any, kernel: Any, Z: Any) -> Any:
    """Open the sites and return the function from inputs to what a likelihood sees."""
    mean = slope if d.mean else None
    if d.process == "additive":
        parts = {"first": kernel, "second": ngp.kernels.Matern52(0.5, 0.8).on(1)}
        return ngp.additive_gp(name(d.sites[0]), parts, {key: Z for key in parts}, mean=mean, jitter=JITTER)
    if d.process == "outputs":
        return ngp.gp(name(d.sites[0]), kernel, Z, outputs=OUTPUTS, mean=mean, jitter=JITTER)
    if d.process == "deep":
        inner = ngp.gp(name("inner"), kernel, Z, outputs=COLUMNS, mean=ngp.means.identity(COLUMNS), jitter=JITTER)
        outer = ngp.gp(name(d.sites[0]), kernel, Z, mean=mean, jitter=JITTER)
        return lambda X: outer(inner.draw(name("jiggle"), X))
    made = [ngp.gp(name(site), kernel, Z, mean=mean, jitter=JITTER) for site in d.sites]
    return made[0] if len(made) == 1 else lambda X: tuple(f(X) for f in made)


@contextmanager
def around_of(d: Description, seen: Any) -> Iterator[None]:
    """The handler and the plate around the data site."""
    with ExitStack() as stack:
        if d.plates == "replicates":
            stack.enter_context(numpyro.plate("replicates", REPLICATES, dim=-2))
        stack.enter_context(groups_of(d))
        if seen is not None:
            stack.enter_context(handlers.mask(mask=seen))
        if d.around == "scale":
            stack.enter_context(handlers.scale(scale=2.5))
        yield


@dataclasses.dataclass(frozen=True)
class Model:
    """The model, a value that pickles; ``prefix`` renames every site."""

    description: Description
    prefix: str

    def __call__(self, X, exposure, y=None, *, Z, batch=None, seen=None):
        d, name = self.description, self.name
        variance = hyperparameter(d, name("variance"), 1.2)
        kernel = kernels_of(d, variance, hyperparameter(d, name("lengthscale"), 0.9, COLUMNS))
        noise = None if d.noise_last else hyperparameter(d, name("noise"), 0.4)
        if d.is_conditioned:
            noise = hyperparameter(d, name("noise"), 0.4) if noise is None else noise
            return regression(d, name, kernel, X, y, Z, noise)
        with handlers.scope(prefix="part", hide_types=["plate"]) if d.around == "scope" else handlers.scale(scale=1.0):
            with groups_of(d):
                f = open_processes(d, name, kernel, Z)
            noise = hyperparameter(d, name("noise"), 0.4) if noise is None else noise
            with numpyro.plate("data", X.shape[0], subsample_size=batch) as rows:
                latent = f.at_inducing() if d.inducing == "X" else f(X if d.inducing == "object" else X[rows])
                first = latent[0] if isinstance(latent, tuple) else latent
                numpyro.deterministic(name("location"), first.mean)
                with around_of(d, None if seen is None else seen[rows]):
                    given = None if y is None else y[rows] if d.plates == "data" else y[:, rows]
                    ngp.observe(name("target"), latent, likelihood_of(d, noise, exposure[rows]), obs=given)

    def name(self, site: str) -> str:
        """Name of a site."""
        return self.prefix + site


def regression(d: Description, name: Any, kernel: Any, X: Any, y: Any, Z: Any, noise: Any) -> None:
    """Gaussian data with the function integrated out."""
    inducing, mean = Z if d.process == "collapsed" else None, slope if d.mean else None
    ngp.gp_regression(name("target"), kernel, X, noise**2, obs=y, inducing=inducing, mean=mean)


def targets_of(d: Description, rng: np.random.Generator) -> np.ndarray:
    """Data in the support of the likelihood."""
    shape = {"replicates": (REPLICATES, ROWS), "groups": (GROUPS, ROWS)}.get(d.plates, (ROWS,))
    classes = {"bernoulli": 2, "probit": 2, "ordinal": 3, "softmax": OUTPUTS, "robust max": OUTPUTS}
    if d.likelihood in classes:
        return rng.integers(0, classes[d.likelihood], shape)
    if d.likelihood in ("poisson", "exposed", "negative binomial", "own"):
        return rng.poisson(2.0, shape)
    if d.likelihood in ("gamma", "exponential"):
        return rng.gamma(2.0, size=shape)
    if d.likelihood == "beta":
        return rng.uniform(0.1, 0.9, shape)
    return rng.normal(size=(ROWS, OUTPUTS) if d.process == "outputs" else shape)


@dataclasses.dataclass(frozen=True)
class Case:
    """A model with its data, its guide and values of its parameters."""

    description: Description
    model: Any
    guide: Any
    svi: Any
    params: dict[str, Any]  # unconstrained
    data: dict[str, Any]  # arguments of the fit
    new: dict[str, Any]  # arguments of a prediction
    draws: dict[str, Any]  # points at all sites, as a chain gives them
    prefix: str  # of the name of each site
    before: str  # scope around the whole model
    found: dict[str, Any] = dataclasses.field(default_factory=dict)  # what several relations ask for

    @property
    def constrained(self) -> dict[str, Any]:
        return self.svi.constrain_fn(self.params)

    @property
    def names(self) -> list[str]:
        """Names of the parameters as they are without a scope or a prefix."""
        return [name.removeprefix(self.before).replace(self.prefix, "") for name in self.params]

    def taken(self, values: Mapping[str, Any], rows: Any) -> dict[str, Any]:
        """Arguments of the model with these rows alone, or in this order."""
        found = {name: value if name in WITHOUT_ROWS else value[rows] for name, value in values.items() if name != "y"}
        if "y" in values:
            is_nested = self.description.plates != "data"
            found["y"] = values["y"][:, rows] if is_nested else values["y"][rows]
        return found

    @property
    def scope(self) -> str:
        """What stands before the names of the process and the data."""
        return self.before + ("part/" if self.description.around == "scope" else "")


@functools.lru_cache(maxsize=4)
def build(d: Description, prefix: str = "", before: str = "", **changed: str) -> Case:
    """The model that a description describes; ``prefix`` renames its sites, ``before`` is a scope around it."""
    d = dataclasses.replace(d, **changed)
    rng = np.random.default_rng(d.seed)
    size = POINTS if d.inducing == "Z" else ROWS
    X, Xnew = (jnp.asarray(rng.normal(size=(ROWS, COLUMNS))) for _ in range(2))
    exposure, other = (jnp.asarray(rng.uniform(0.5, 8.0, ROWS)) for _ in range(2))
    Z = jnp.asarray(rng.normal(size=(POINTS, COLUMNS))) if d.inducing == "Z" else X
    seen = jnp.arange(ROWS) < ROWS - 2
    data = {"X": X, "exposure": exposure, "y": jnp.asarray(targets_of(d, rng)), "Z": Z}
    data |= {"seen": seen} if d.around == "mask" else {}
    model = Model(d, prefix)
    model = handlers.scope(model, prefix=before[:-1]) if before else model
    scope = before + ("part/" if d.around == "scope" else "")
    recipes = {f"{scope}{prefix}{site}": recipe_of(d.belief, d.seed) for site in d.sites}
    guide = ngp.AutoGP(model, recipes)
    svi = SVI(model, guide, optax.sgd(0.0), Trace_ELBO())
    params = svi.optim.get_params(svi.init(jax.random.key(0), **data).optim_state)
    moved = {name: _moved(name, value, d.seed) for name, value in params.items()}
    new = {"X": X if d.inducing == "object" else Xnew, "exposure": other, "Z": Z}
    return Case(d, model, guide, svi, moved, data, new, _draws(d, prefix, before, size), prefix, before)


def _moved(name: str, value: Any, seed: int) -> Any:
    """Values away from the start; a precision stays symmetric."""
    rng = np.random.default_rng(abs(hash((value.shape, seed))) % 2**32)
    step = 0.2 * rng.normal(size=value.shape)
    step = step @ np.swapaxes(step, -1, -2) if name.endswith("natural_precision") else step
    return value + jnp.asarray(step)


def _draws(d: Description, prefix: str, before: str, size: int) -> dict[str, Any]:
    """Draws of every latent site outside the data plate, the draws on the first axis."""
    rng, found = np.random.default_rng(d.seed + 50), {}
    scope = before + ("part/" if d.around == "scope" else "")
    if d.hyper == "sampled":
        inside = scope if d.noise_last and not d.is_conditioned else before
        shapes = {before + prefix + "variance": (), before + prefix + "lengthscale": (COLUMNS,)}
        shapes[inside + prefix + "noise"] = ()
        found = {site: jnp.asarray(rng.uniform(0.3, 1.5, (DRAWS, *shape))) for site, shape in shapes.items()}
    length = 2 * size if d.process == "additive" else size
    shapes = {site: (OUTPUTS, length) if d.process == "outputs" else (length,) for site in d.sites}
    shapes |= {"inner": (COLUMNS, length)} if d.is_deep else {}
    members = (GROUPS, 1) if d.is_grouped else ()
    for site, shape in shapes.items():
        found[scope + prefix + site] = jnp.asarray(rng.normal(size=(DRAWS, *members, *shape)))
    return found
