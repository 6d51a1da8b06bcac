"""Two hundred ways to call the library wrongly, each a call and the message it gets.

A row is ``(call, message)``: the start of the message, with the argument and the requirement, as a regular expression.
`test_misuses.py` holds all of them to the one form of message, and every row to its own words.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from numpyro_gp import beliefs, guides, kernels, likelihoods

Row = tuple[Callable[[], Any], str]

KEY = jax.random.key(0)
X = np.linspace(-1.0, 1.0, 12).reshape(6, 2)
Z = X[:3] + 0.1
Y = X[:, 0]
NAN = np.where(np.arange(6) == 2, np.nan, Y)
BAD = np.where(X[1, 0] == X, np.nan, X)
ONE, TWO = np.zeros(3), np.eye(3)
RBF = kernels.RBF(1.0, 1.0)
SLOPES = ngp.functionals.Derivative(X, 0)
PAST = ngp.PseudoData(Z, ONE, jnp.eye(3))
NORMAL = dist.Normal(jnp.zeros(6), jnp.ones(6))


def model(X, y=None, *, Z=Z):
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 1.0))
    f = ngp.gp("f", RBF, Z)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), likelihoods.Gaussian(noise), obs=y)


def exact(X, y=None):
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 1.0))
    ngp.gp_regression("y", RBF, X, noise, obs=y)


def seeded(call: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: handlers.seed(call, rng_seed=0)()


def process(**options: Any) -> Any:
    return seeded(lambda: ngp.gp("f", RBF, Z, **options))()


def in_data_plate(call: Callable[[Any], Any]) -> Callable[[], Any]:
    """A call about a process that was opened outside of the plate of data, inside of it."""

    def run() -> None:
        f = ngp.gp("f", RBF, Z)
        with numpyro.plate("data", 6):
            call(f)

    return seeded(run)


def twice_observed() -> None:
    """Further data at a process that is conditioned on its own."""
    f = ngp.gp_regression("y", RBF, X, 0.1, obs=Y)
    ngp.observe("more", f(X), likelihoods.Gaussian(0.1), obs=Y)


@functools.cache
def chain() -> ngp.Posterior:
    return ngp.Posterior.from_mcmc(model, {"noise": jnp.full(2, 0.3), "f": jnp.zeros((2, 3))})


@functools.cache
def conditioned() -> ngp.Posterior:
    return ngp.Posterior.from_mcmc(exact, {"noise": jnp.full(2, 0.3)})


@functools.cache
def prediction() -> ngp.Prediction:
    return chain().predict(KEY, jnp.asarray(X))


@functools.cache
def guide() -> ngp.AutoGP:
    made = ngp.AutoGP(model)
    handlers.seed(made, rng_seed=0)(jnp.asarray(X), jnp.asarray(Y))
    return made


def engine(**options: Any) -> SVI:
    return SVI(model, ngp.AutoGP(model), optax.adam(0.1), Trace_ELBO(), **options)


KERNELS: list[Row] = [
    (lambda: ngp.inducing.kmeans(KEY, SLOPES, 2), "X must be an array of real numbers, but got a Derivative"),
    (lambda: ngp.starting.lengthscale_prior(SLOPES), "X must be an array of real numbers, but got a Derivative"),
    (in_data_plate(lambda f: ngp.recall("past", f, PAST)), "the site 'past' must be in the plates of 'f', none"),
    (in_data_plate(lambda f: ngp.functionals.monotone("up", f, X)), "the site 'up' must be in the plates of 'f', none"),
    (
        seeded(lambda: ngp.gp_regression("y", RBF, X, 0.1, obs=NAN)),
        "obs of site 'y' must be free of NaN.*Leave these rows out of X and the data",
    ),
    (
        lambda: ngp.Posterior.from_mcmc(model, {"f": np.ones((2, 5, 3)), "noise": np.ones((2, 5))}).predict(KEY, X),
        "args must be those to which posterior draws of site.*Stack chains",
    ),
    (in_data_plate(lambda f: ngp.point_pattern("at", f, X, 0.1)), "the site 'at' must be outside of every plate"),
    (seeded(lambda: twice_observed()), "f of site 'more' must be of a `gp`, but got that of gp_regression 'y'"),
    (lambda: kernels.RBF(-1.0, 1.0), "variance must be positive"),
    (lambda: kernels.Matern32(np.inf, 1.0), "variance must be finite"),
    (lambda: kernels.Matern52(np.ones(2), 1.0), "variance must be a scalar"),
    (lambda: kernels.RBF(1.0, np.ones((2, 2))), "lengthscale must be a scalar or one value for each input"),
    (lambda: kernels.RBF("1", 1.0), "variance must be an array of real numbers"),
    (lambda: kernels.RBF(1.0, np.ones(3)).matrix(X), r"lengthscale must be a scalar or of shape \(2,\)"),
    (lambda: RBF.matrix(X[None]), r"X1 must be an array of shape \(N, D\)"),
    (lambda: RBF.matrix(X[:0]), "X1 must be a non-empty array"),
    (lambda: RBF.matrix(X, X[:, :1]), "X2 must be an array with 2 columns"),
    (lambda: RBF.matrix(BAD), "X1 must be finite"),
    (lambda: RBF.on(2).matrix(X), "dims must be less than 2"),
    (lambda: RBF.on([0, 0]), "dims must be one or more different columns"),
    (lambda: RBF.on([]), "dims must be one or more different columns"),
    (lambda: RBF.on(-1), "dims must be at least 0"),
    (lambda: RBF.on("age"), "dims must be an int or a sequence of ints"),
    (lambda: -1.0 * RBF, "factor must be positive"),
    (lambda: RBF * np.ones(2), "factor must be a scalar"),
    (lambda: RBF + 1.0, "kernel must be a kernel or a function k.X1, X2., but got a float.*Constant.c."),
    (lambda: kernels.as_kernel(kernels.RBF), "kernel must be a kernel or a function"),
    (lambda: kernels.as_kernel(lambda a, b: a @ a.T).matrix(X, Z), r"kernel\(X1, X2\) must be of shape \(6, 3\)"),
    (lambda: kernels.Polynomial(1.0, 1.0, 1.5), "degree must be a whole number"),
    (lambda: kernels.Polynomial(1.0, -1.0, 2), "offset must be zero or positive"),
    (lambda: kernels.ArcCosine(1.0, 1.0, 1.0, 7), "order must be"),
    (lambda: kernels.Uniform(1.0, 0.0), "high must be"),
    (lambda: kernels.ZeroMean(RBF, None), "measure must be"),
    (lambda: kernels.Coregion(np.ones(3), np.ones(3)), "weights must be"),
    (lambda: kernels.ZeroMeanCategory(1.0, [0.5, 0.6]), "probabilities must be"),
]

PRIMITIVES: list[Row] = [
    (seeded(lambda: ngp.gp("", RBF, Z)), "name must be the name of a sample site"),
    (seeded(lambda: ngp.gp(RBF, "f", Z)), "kernel must be a kernel or a function"),
    (seeded(lambda: ngp.gp("f", RBF, Z[:, 0])), r"inducing must be an array of shape \(..., N, D\)"),
    (seeded(lambda: ngp.gp("f", RBF, BAD)), "inducing must be finite"),
    (seeded(lambda: ngp.gp("f", RBF, None)), "inducing must be an array of real numbers"),
    (seeded(lambda: ngp.gp("f", RBF, Z, outputs=0)), "outputs must be at least 1"),
    (seeded(lambda: ngp.gp("f", RBF, Z, jitter=-1e-6)), "jitter must be zero or positive"),
    (seeded(lambda: ngp.gp("f", RBF, Z, jitter=np.full(2, 1e-6))), "jitter must be a scalar"),
    (seeded(lambda: ngp.gp("f", RBF, Z, mean="linear")), "mean must be"),
    (seeded(lambda: ngp.gp("f", RBF, Z, mean=lambda X: X)(X)), "mean must be a function whose value"),
    (lambda: process()(X[:, :1]), "X must be an array with 2 columns"),
    (lambda: process()(BAD), "X must be finite"),
    (lambda: process().joint(X[:, :1]), "X must be an array with 2 columns"),
    (seeded(lambda: process().draw("", X)), "site must be the name of a sample site"),
    (seeded(lambda: ngp.additive_gp("f", RBF, Z)), "kernels must be"),
    (seeded(lambda: ngp.additive_gp("f", {"a": RBF}, {"b": Z})), "inducing must be"),
    (seeded(lambda: ngp.additive_gp("f", {}, {})), "kernels must be"),
    (seeded(lambda: ngp.additive_gp("f", {"a": RBF, "b": RBF}, {"a": Z, "b": Z[:, :1]})), "inducing"),
    (seeded(lambda: ngp.gp_regression("y", RBF, X, -1.0)), "noise_variance must be positive"),
    (
        seeded(lambda: ngp.gp_regression("y", RBF, X, np.ones(5))),
        r"the kernel, the inducing inputs or the noise of site",
    ),
    (seeded(lambda: ngp.gp_regression("y", RBF, X, 1.0, obs=Y[:5])), "obs of site 'y' must be of the shape of f"),
    (seeded(lambda: ngp.gp_regression("y", RBF, Y, 1.0)), r"X must be an array of shape \(..., N, D\)"),
    (
        seeded(lambda: ngp.gp_regression("y", RBF, X, 1.0, inducing=Z[:, :1])),
        "inducing must be an array with 2 columns",
    ),
    (seeded(lambda: ngp.gp_regression("y", RBF, X, 1.0, mean=lambda X: X)), "mean must be"),
    (seeded(lambda: ngp.observe("y", NORMAL, likelihoods.Poisson)), "likelihood must be an instance"),
    (seeded(lambda: ngp.observe("y", NORMAL, dist.Normal(0.0, 1.0))), "likelihood must be a Likelihood or a callable"),
    (seeded(lambda: ngp.observe("y", Y, likelihoods.Poisson())), "f must be a Normal"),
    (seeded(lambda: ngp.observe("y", process(), likelihoods.Poisson())), "f must be a Normal"),
    (seeded(lambda: ngp.observe("y", NORMAL, likelihoods.Softmax(3))), "f must be 3 latent functions"),
    (seeded(lambda: ngp.observe("y", NORMAL, likelihoods.Gaussian(1.0), obs=Y[:5])), "obs of site 'y' must be of the"),
    (
        seeded(lambda: ngp.observe("y", NORMAL, likelihoods.Gaussian(1.0), obs=NAN)),
        "obs of site 'y' must be free of NaN",
    ),
    (seeded(lambda: ngp.observe("y", NORMAL, likelihoods.Gaussian(1.0), obs="y")), "obs of site 'y' must be"),
    (seeded(lambda: ngp.observe("", NORMAL, likelihoods.Gaussian(1.0))), "name must be the name of a sample site"),
    (seeded(lambda: ngp.latent_inputs("w", Y)), "X must be an array of shape"),
    (seeded(lambda: ngp.latent_inputs("w", X, dim=0)), "dim must be at least 1"),
    (seeded(lambda: ngp.latent_inputs(3, X)), "name must be the name of a sample site"),
    (
        seeded(lambda: ngp.observe("y", NORMAL, likelihoods.Gaussian(1.0), offset=ONE)),
        r"offset of site 'y' must be a number, or of the shape of the data, \(6,\)",
    ),
    (seeded(lambda: ngp.gp("f", lambda a, b: a @ b.T, Z).function("g")), "kernel must be one with features"),
    (seeded(lambda: ngp.gp("f", RBF, np.zeros((3, 1), bool))), "inducing must be floating point"),
    (lambda: process()(X[:0]), "X must be a non-empty array"),
    (
        seeded(lambda: ngp.gp_regression("y", RBF, X, 0.1, obs=np.where(np.isnan(NAN), np.inf, Y))),
        "obs of site 'y' must be free of infinity",
    ),
]

LIKELIHOODS: list[Row] = [
    (lambda: likelihoods.Gaussian(-0.1), "scale must be positive"),
    (lambda: likelihoods.Gaussian("0.1"), "scale must be an array of real numbers"),
    (lambda: likelihoods.Bernoulli(link="log"), "link must be one of"),
    (lambda: likelihoods.Ordinal(1.0), "cutpoints must be an array"),
    (lambda: likelihoods.RobustMax(1), "classes must be at least 2"),
    (lambda: observed(likelihoods.Bernoulli(), Y), "obs must be labels 0 or 1"),
    (lambda: observed(likelihoods.Poisson(), Y), "obs must be non-negative whole numbers"),
    (lambda: observed(likelihoods.Beta(1.0), 3.0 + Y), "obs must be"),
    (lambda: observed(likelihoods.Ordinal([0.0]), np.full(6, 2)), "obs must be labels 0"),
    (lambda: observed(lambda f: f, Y), "likelihood must be a callable that returns a NumPyro distribution"),
    (lambda: observed(lambda f: dist.Poisson(jnp.exp(f)), Y), "obs must be in the support"),
    (lambda: observed(lambda f, g: dist.Normal(f, jnp.exp(g)), Y), "f must be 2 latent functions"),
    (lambda: likelihoods.as_likelihood(3), "likelihood must be a Likelihood or a callable"),
]


def observed(likelihood: Any, y: Any) -> Any:
    return seeded(lambda: ngp.observe("y", NORMAL, likelihood, obs=y))()


def site_of(recipe: Any, **options: Any) -> Any:
    """A guide with this recipe, run once."""

    def own(X, y=None):
        f = ngp.gp("f", RBF, Z, **options)
        with numpyro.plate("data", 6):
            g = f(X)
            ngp.observe("y", g if not options else dist.Normal(g.mean[:, 0], 1.0), likelihoods.Gaussian(0.1), obs=y)

    return handlers.seed(ngp.AutoGP(own, {"f": recipe}), rng_seed=0)(jnp.asarray(X), jnp.asarray(Y))


BELIEFS: list[Row] = [
    (lambda: beliefs.Coupled(ONE, np.eye(2)), r"scale_tril must be of shape \(3, 3\)"),
    (lambda: beliefs.Coupled(ONE, np.ones((3, 3))), "scale_tril must be lower triangular"),
    (lambda: beliefs.Coupled(ONE, -TWO), "scale_tril must be a factor with a positive diagonal"),
    (lambda: beliefs.Coupled(NAN, np.eye(6)), "mean must be finite"),
    (lambda: beliefs.Coupled(np.zeros(3, int), TWO), "mean must be floating point"),
    (lambda: beliefs.MeanField(ONE, -np.ones(3)), "scale must be positive"),
    (lambda: beliefs.MeanField(ONE, np.ones(2)), "scale must be of shape"),
    (lambda: beliefs.Decoupled(Z[:, 0], ONE, TWO), "Z_alpha must be an array of shape"),
    (lambda: beliefs.Decoupled(Z, np.zeros(2), TWO), "a must be of shape"),
    (lambda: beliefs.Orthogonal(Z, ONE, ONE, np.eye(2)), "scale_tril must be of shape"),
    (lambda: beliefs.DecoupledLayer(Z, ONE), "scale_tril or B_tril must be given, exactly one"),
    (lambda: beliefs.DecoupledLayer(Z, ONE, mean="zero", scale_tril=TWO), "mean must be one of"),
    (lambda: beliefs.Structured(ONE, np.ones((2, 1))), "W must be of shape"),
    (lambda: beliefs.Structured(ONE, np.ones((3, 0))), "W must be of rank at least 1"),
    (lambda: beliefs.BlockDiagonal(ONE, (np.eye(2),)), "scale_trils must be of sizes that add up to 3"),
    (lambda: beliefs.DecoupledLayer(Z, np.zeros(2), scale_tril=TWO), "mean_parameter must be of shape"),
    (lambda: beliefs.truncate(beliefs.Coupled(ONE, TWO)), "belief must be a Structured or a BlockLowRank"),
    (lambda: beliefs.truncate(beliefs.Structured(ONE, np.ones((3, 1))), 0.0), "nats must be positive"),
    (lambda: beliefs.additive_optimum({"a": RBF}, {"b": Z}, X, Y, 1.0), "inducing must be about the components"),
    (lambda: beliefs.additive_optimum({"a": RBF}, {"a": Z}, X, Y, 1.0, form="diagonal"), "form must be one of"),
    (lambda: beliefs.coupled_optimum(RBF, Z, X, Y, -1.0), "noise must be positive"),
    (lambda: beliefs.coupled_optimum(RBF, Z, X, Y[:5], 1.0), "y must be of shape"),
    (lambda: beliefs.orthogonal_optimum(RBF, Z, Z[:, :1], X, Y, 1.0), "Z_"),
    (lambda: ngp.Belief(np.zeros(3)), "value must be a belief"),
    (
        lambda: handlers.substitute(handlers.seed(model, 0), {"f": beliefs.Coupled(np.zeros(4), np.eye(4))})(X, Y),
        "the belief at site 'f' must be over whitened values of shape",
    ),
    (
        lambda: handlers.substitute(handlers.seed(model, 0), {"f": jnp.zeros(4)})(X, Y),
        "the value of site 'f' must be whitened inducing values of shape",
    ),
]

GUIDES: list[Row] = [
    (lambda: guides.coupled(scale=0.0), "scale must be positive"),
    (lambda: guides.coupled(scale=np.ones(2)), "scale must be one positive number"),
    (lambda: guides.decoupled(Z[:, 0]), "Z_alpha must be an array of shape"),
    (lambda: guides.orthogonal(Z, columns=0), "columns must be at least 1"),
    (lambda: guides.orthogonal(Z, gamma="fast"), "gamma must be one of"),
    (lambda: guides.structured(0), "rank must be at least 1"),
    (lambda: guides.conditional(natural=False), "natural must be True"),
    (lambda: guides.decoupled_layer(Z, mean="none"), "mean must be one of"),
    (lambda: guides.decoupled_layer(Z, covariance="none"), "covariance must be one of"),
    (lambda: guides.encoder(hidden=(0,)), "hidden must be"),
    (lambda: site_of(guides.coupled(mean=np.zeros(4))), r"mean of the recipe for 'f' must be of shape \(3,\)"),
    (lambda: site_of(guides.block_diagonal()), "the site 'f' must be an additive_gp"),
    (lambda: site_of(guides.decoupled(Z[:, :1])), "Z_alpha"),
    (lambda: site_of(lambda name, prior: 3.0), "the recipe of site 'f' must be a function that returns a belief"),
    (lambda: ngp.AutoGP(model, {"f": guides.coupled}), r"recipes\['f'\] must be a recipe"),
    (lambda: ngp.AutoGP(model, {"f": beliefs.Coupled(ONE, TWO)}), r"recipes\['f'\] must be a recipe"),
    (
        lambda: handlers.seed(ngp.AutoGP(model, {"g": guides.coupled()}), rng_seed=0)(X, Y),
        "recipes must be about latent sites of the model",
    ),
    (
        lambda: handlers.seed(ngp.AutoGP(model, {"noise": guides.coupled()}), rng_seed=0)(X, Y),
        "the recipe of site 'noise' must be one for its kind of site",
    ),
    (lambda: ngp.AutoGP(model).beliefs({}), "the guide must be initialised"),
]
