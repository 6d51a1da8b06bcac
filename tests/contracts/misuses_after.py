"""The other half of the table of misuses: starts, runs, answers and their criticism."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import optax
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp
from numpyro_gp import inducing, kernels, means, metrics, optim, plots, stein
from tests.contracts.misuses import (
    KEY,
    NAN,
    ONE,
    RBF,
    Row,
    X,
    Y,
    Z,
    chain,
    conditioned,
    engine,
    guide,
    model,
    prediction,
)

HALF = np.full(6, 0.5)


def additive() -> Any:
    zero_mean = kernels.ZeroMean(kernels.RBF(1.0, 0.3), kernels.Uniform(-1.0, 1.0))
    parts = {"a": zero_mean.on(0), "b": zero_mean.on(1)}
    return handlers.seed(ngp.additive_gp, rng_seed=0)("f", parts, {"a": Z, "b": Z})


def svgd(**options: Any) -> Any:
    return stein.SVGD(model, optax.adam(0.1), **options)


STARTS: list[Row] = [
    (lambda: inducing.kmeans(0, X, 2), "key must be one JAX random key"),
    (lambda: inducing.random_subset(KEY, X[[0, 0, 0]], 2), "num_inducing must be at most the number of distinct rows"),
    (lambda: inducing.greedy_variance(RBF, X, 2, key=3), "key must be one JAX random key"),
    (lambda: ngp.deep.initial_layers(X, Z, [0]), "widths must be at least 1"),
    (lambda: ngp.deep.principal_directions(X, 0), "outputs must be at least 1"),
    (lambda: ngp.deep.latent_columns(KEY, Z, 0), "dim must be at least 1"),
    (lambda: ngp.deep.mix(X, np.ones((3, 3))), "values must be with 3 columns"),
    (lambda: means.Linear(np.ones(3))(X), "X must be|weights must be"),
    (lambda: means.identity(0), "inputs must be at least 1"),
    (lambda: means.padding(3, 2), "outputs must be"),
    (lambda: means.pca(Y, 1), "X must be an array of shape"),
    (lambda: means.as_mean(np.ones(2)), "mean must be a number or a function of the inputs, but got an ndarray"),
    (lambda: means.as_mean(means.Zero), "mean must be .* but got the class Zero"),
    (
        lambda: means.as_mean(lambda X: jnp.sum(X))(X),
        r"mean\(X\) must be of shape \(6,\) or \(6, 'P'\), but got shape \(\)",
    ),
    (lambda: means.Zero(0), "outputs must be at least 1"),
    (lambda: means.Constant(np.ones((2, 2))), r"value must be a scalar or of shape \(P,\)"),
    (lambda: means.Constant(np.nan), "value must be finite"),
    (lambda: means.Linear(1.0), r"weights must be of shape \(D,\) or \(D, P\)"),
    (lambda: means.Linear(np.ones((3, 2)), np.ones(3)), r"bias must be a scalar or of shape \(2,\)"),
    (lambda: means.Linear(np.ones(3), np.ones(3)), r"bias must be a scalar, but got shape \(3,\)"),
    (lambda: means.Projection(np.ones(3)), r"weights must be of shape \(D, P\)"),
    (lambda: means.Projection(np.ones((2, 2), int)), "weights must be floating point"),
    (lambda: means.Zero()(X[:, 0]), r"X must be an array of shape \(..., N, D\)"),
    (lambda: optim.natural_gradient(0.1), "rest must be an optax optimiser"),
    (lambda: optim.natural_gradient(numpyro.optim.Adam(0.1)), "rest must be .* but got <numpyro.optim.Adam"),
    (lambda: optim.natural_gradient(optax.adam(0.1), 0.0), "step must be positive"),
    (lambda: optim.natural_gradient(optax.adam(0.1), 2.0), "step must be at most 1, but got 2.0"),
    (lambda: optim.ramp(-1.0, 0.1, 5), "initial must be positive"),
    (lambda: optim.ramp(0.1, 3.0, 5), "initial and final must be at most 1, but got 0.1 and 3.0"),
    (lambda: optim.ramp(0.1, 0.1, 0), "num_steps must be at least 1"),
    (lambda: optim.ramp(0.1, 0.1, 5, "cubic"), "kind must be one of 'log', 'linear'"),
    (lambda: optim.natural_gradient(optax.adam(0.1), step="big"), "step must be"),
    (lambda: optim.natural_gradient(optax.adam(0.1)).init({"f/mean": jnp.ones(2)}), "guide must be one with natural"),
    (lambda: optim.natural_gradient(optax.adam(0.1)).init([jnp.ones(2)]), "params must be a dictionary"),
    (lambda: ngp.ImportanceWeightedELBO(0), "num_samples must be at least 1"),
    (
        lambda: ngp.ImportanceWeightedELBO(5, plate="rows").loss(KEY, {}, model, guide(), X, Y),
        "plate must be",
    ),
]


def adam_on_natural_parameters() -> Any:
    recipes = {"f": ngp.guides.coupled(natural=True)}
    return ngp.fit(KEY, SVI(model, ngp.AutoGP(model, recipes), optax.adam(0.1), Trace_ELBO()), 5, X, Y)


RUNS: list[Row] = [
    (lambda: ngp.fit(0, engine(), 5, X, Y), "key must be one JAX random key"),
    (lambda: ngp.fit(KEY, engine(), 0, X, Y), "num_steps must be at least 1"),
    (lambda: ngp.fit(KEY, ngp.AutoGP(model), 5, X, Y), "svi_or_stein must be an SVI"),
    (lambda: ngp.fit(KEY, engine(), 5, X, Y, chunk_size=0), "chunk_size must be at least 1"),
    (lambda: ngp.fit(KEY, engine(), 5, X, Y, resume=True), "checkpoint must be a path when resume=True"),
    (lambda: ngp.fit(KEY, engine(), 5, X, Y, resume="/no/file.npz"), "resume must be an existing checkpoint file"),
    (lambda: ngp.fit(KEY, engine(), 5, X, Y, checkpoint="/no/folder/a.npz"), "checkpoint must be a file in a folder"),
    (lambda: ngp.fit(KEY, engine(), 5, X, Y, checkpoint_every="often"), "checkpoint_every must be"),
    (lambda: ngp.fit(KEY, engine(), 5, X[:0], Y[:0]), "X of the model must be non-empty"),
    (lambda: ngp.fit(KEY, svgd(), 5, X, Y, init_params={}), "init_params must be left out for this engine"),
    (lambda: ngp.fit(KEY, engine(), 5, X, Y, Y), "args and kwargs must be arguments of the model"),
    (lambda: svgd(num_stein_particles=0), "num_stein_particles must be at least 1"),
    (lambda: svgd(kernel_fn=stein.RBF), "kernel_fn must be a kernel"),
    (lambda: svgd(evaluation="fast"), "evaluation must be one of"),
    (
        lambda: svgd(init_particles={"nois": np.ones(10)}).init(KEY, X, Y),
        "init_particles must be values of latent sites",
    ),
    (
        lambda: svgd(init_particles={"noise": -np.ones(10)}).init(KEY, X, Y),
        r"init_particles\['noise'\] must be inside the support",
    ),
    (lambda: stein.SVGD(model, 0.1), "optim must be a NumPyro or optax optimiser"),
    (lambda: svgd().particles({}), "svgd must be initialised"),
    (lambda: stein.RBF(bandwidth=-1.0), 'bandwidth must be "median" or a positive number'),
    (lambda: stein.IMQ(power=0.5), "power must be between -1 and 0"),
    (lambda: stein.IMQ(c=0.0), "c must be a positive number"),
    (lambda: stein.Groups([["a"], ["a"]]), "groups must be groups that share no site"),
    (lambda: stein.PerSite({"a": stein.RBF}), "kernels must be RBF or IMQ"),
    (lambda: stein.Around({}, scale=-1.0), "scale must be zero or positive"),
    (lambda: stein.svgd_direction(X, Z), "scores must be of the shapes of the particles"),
    (lambda: stein.svgd_direction(X, X, stein.RBF), "kernel must be RBF, IMQ, PerSite, Groups or Moments"),
    (lambda: stein.svgd_direction(X.astype(int), X), "particles must be floating point"),
    (lambda: stein.ksd(X, Z), "scores must be of the shapes of the particles"),
    (lambda: stein.particle_paths(KEY, svgd(), 5, X, Y, every=2), "every must be a divisor of the 5 steps"),
    (adam_on_natural_parameters, "the optimiser must be one that takes plain gradient steps"),
]

ANSWERS: list[Row] = [
    (lambda: ngp.Posterior.from_svi(guide(), model, {}), "model must be the model function, but got the guide AutoGP"),
    (lambda: prediction().quantiles(0.1, 0.9), "num_samples must be a whole number, but got 0.9"),
    (lambda: ngp.Posterior.from_svi(model, ngp.AutoGP(model), {}), "guide must be the guide that was fitted"),
    (lambda: ngp.Posterior.from_svi(model, AutoDelta(model), {}), "guide must be the guide that was fitted"),
    (lambda: ngp.Posterior.from_svi(model, guide(), {"f/mean": ONE}), "params must be the parameters of the guide"),
    (lambda: guide().beliefs({}), "params must be the parameters of the guide"),
    (lambda: guide().sample_posterior(KEY, {}), "params must be the parameters of the guide"),
    (lambda: ngp.Posterior.from_mcmc(model, {}), "mcmc must be a finished run with draws"),
    (
        lambda: ngp.Posterior.from_mcmc(model, {"noise": np.ones(2), "f": np.ones((3, 3))}),
        "mcmc must be draws with one",
    ),
    (lambda: ngp.Posterior.load("/no/file.npz", model), "path must be a file written by Posterior.save"),
    (lambda: chain().save("/no/folder/a.npz"), "path must be a file in a folder that exists"),
    (lambda: chain().predict(0, X), "key must be one JAX random key"),
    (lambda: chain().predict(KEY), "args and kwargs must be arguments of the model"),
    (lambda: chain().predict(KEY, X, Y), "site must be one unobserved ngp.observe site"),
    (lambda: chain().predict(KEY, X, site="z"), "site must be one unobserved ngp.observe site"),
    (lambda: chain().predict(KEY, X, chunk_size=0), "chunk_size must be at least 1"),
    (lambda: chain().predict(KEY, X, num_samples=0), "num_samples must be at least 1"),
    (lambda: chain().predict(KEY, X, rows=["Q"]), "rows must be names of array arguments"),
    (lambda: chain().predict(KEY, X[:0]), "rows must be arguments with the same, non-zero number of rows"),
    (lambda: chain().predict(KEY, jnp.asarray(X[:, :1])), "X2? must be an array with 2 columns"),
    (lambda: chain().predict(KEY, 3.0), "X must be an array of numbers, whose rows are predicted"),
    (lambda: chain().predict_at(KEY, X, X, Y), "gp must be the data site of a gp_regression"),
    (lambda: conditioned().predict(KEY, X), "site must be one unobserved ngp.observe site"),
    (lambda: conditioned().predict_at(KEY, X, X, Y, gp="z"), "gp must be the name of one process"),
    (lambda: conditioned().predict_at(KEY, X, X, Y, noise_variance=-1.0), "noise_variance must be positive"),
    (lambda: chain().function_draws(KEY, jnp.asarray(X), gp="g"), "gp must be the name of one process"),
    (lambda: chain().draws(KEY, jnp.asarray(X)), "site 'y' must be observed"),
    (lambda: chain().draws(KEY, jnp.asarray(X), jnp.asarray(Y), num_samples=0), "num_samples must be at least 1"),
    (lambda: chain().to_arviz(KEY, jnp.asarray(X), jnp.asarray(Y), dims={"q": ["a"]}), "dims must be names of sites"),
    (lambda: prediction().log_density(Y[:5]), r"y must be of shape \(6,\)"),
    (lambda: prediction().log_density(NAN), "y must be free of NaN"),
    (lambda: prediction().log_density("y"), "y must be an array of real numbers"),
    (lambda: prediction().quantiles(1.5), "levels must be one or more numbers between 0 and 1"),
    (lambda: prediction().quantiles("all"), "levels must be an array of real numbers"),
    (lambda: prediction().sample(0), "num_samples must be at least 1"),
    (lambda: prediction().sample(3, key=1), "key must be one JAX random key"),
    (lambda: ngp.compare({"a": chain()}, KEY, X, y=Y, at=X), "train must be given with at"),
    (lambda: ngp.compare({"a": chain()}, KEY, X, y=Y, max_parameters=0), "max_parameters must be at least 1"),
    (lambda: ngp.compare({"a": chain()}, KEY, jnp.asarray(X), y=Y[:3]), r"y must be of shape \(6,\)"),
]

CRITICISM: list[Row] = [
    (lambda: ngp.diagnose.importance_weights(chain(), KEY, X, Y), "posterior must be of a variational fit"),
    (lambda: ngp.diagnose.importance_resample(chain(), KEY, X, Y), "posterior must be of a variational fit"),
    (lambda: ngp.diagnose.sbc(KEY, model, X, num_simulations=3), "num_simulations must be at least 10"),
    (lambda: ngp.diagnose.sbc(KEY, model, X, num_draws=3), "num_draws must be at least 7"),
    (lambda: ngp.diagnose.sbc(KEY, model, jnp.asarray(X), data={"z": "y"}), "data must be sites of the model"),
    (lambda: ngp.diagnose.sbc(KEY, model, X, thinning=0), "thinning must be at least 1"),
    (lambda: metrics.rmse(Y, Y[:, None]), "mean must be of the shape of y"),
    (lambda: metrics.rmse(NAN, Y), "mean must be finite"),
    (lambda: metrics.crps_samples(X[:1, 0][None], Y[:1]), "samples must be at least 2 draws"),
    (lambda: metrics.interval_coverage(Y + 1, Y, Y), "lower must be not greater than upper"),
    (lambda: metrics.pit_uniformity(Y - 2.0), "pit must be between 0 and 1"),
    (lambda: metrics.expected_calibration_error(HALF, np.ones(6, int), bins=0), "bins must be at least 1"),
    (lambda: metrics.mean_log_density([]), "log_density must be a non-empty array"),
    (lambda: plots.function(X, Y), r"X must be of shape \(N, 1\) or \(N,\)"),
    (
        lambda: plots.surface(np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), chain()),
        r"prediction must be a prediction.* Pass posterior\.predict",
    ),
    (
        lambda: plots.function(Y, chain()),
        r"prediction must be a prediction, .*got a Posterior. Pass posterior\.predict",
    ),
    (lambda: plots.calibration(prediction()), "y must be the data of the predictions"),
    (lambda: plots.calibration(Y + 3.0), "predictions.* must be PIT values between 0 and 1"),
    (lambda: plots.convergence({}), "losses must be a dictionary with an entry or more"),
    (lambda: plots.hyperparameters({"a": chain()}, "rate"), "site must be one of"),
    (lambda: plots.particles({}), "values must be"),
    (lambda: ngp.anova.design(Y), r"X must be an array of shape \(N, D\)"),
    (lambda: ngp.anova.design(X, names=["a"]), "names must be 2 different names"),
    (lambda: ngp.anova.design(X, family="RBF"), "family must be RBF"),
    (lambda: ngp.anova.design(X, pairs="some"), "pairs must be 'all' or a sequence"),
    (lambda: ngp.anova.design(X, pairs=[(0, 0)]), "pairs must be pairs of two different columns"),
    (lambda: ngp.anova.design(X, categorical=["c"]), "columns must be"),
    (lambda: ngp.anova.design(X).model(ngp.likelihoods.Poisson()), "likelihood must be a function without arguments"),
    (lambda: ngp.sobol.expected(guide()), "f must be"),
    (lambda: ngp.sobol.draws(additive(), 0), "key must be one JAX random key"),
    (lambda: ngp.sobol.intervals(ngp.sobol.expected(additive()), level=2.0), "level must be less than 1"),
    (lambda: ngp.sobol.sample(chain(), KEY, jnp.asarray(X)), "site must be one additive_gp site"),
    (lambda: additive().components(X[:, :1]), "X must be an array with 2 columns"),
    (lambda: ngp.effects(chain(), KEY, X, design=3), "design must be"),
    (lambda: ngp.conditional_density.density_on_grid(prediction(), "grid"), "grid must be"),
    (lambda: ngp.compare({"a": chain()}, KEY, X, y=Y, train="y"), "train must be a tuple of the arguments of the fit"),
]
