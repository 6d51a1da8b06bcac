"""The gp primitive: predictions from points and beliefs, draws, shapes, NumPyro's handlers, bad input."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

import numpyro_gp as ngp
from numpyro_gp.primitives.functions import function_draw
from numpyro_gp.primitives.gp import GaussianProcess
from tests.oracles.build import kernel_of
from tests.oracles.vectors import cases


def process(value, kernel, Z, **options):
    """The process that a model sees when its site holds ``value``."""
    with handlers.seed(rng_seed=0), handlers.substitute(data={"f": value}):
        return ngp.gp("f", kernel, Z, **options)


@pytest.mark.long
@pytest.mark.parametrize("case", cases("svgp"))
def test_belief_gives_marginals_and_joint(case):
    belief = ngp.beliefs.Coupled(jnp.asarray(case["m"]), jnp.asarray(case["S_chol"]))
    f = process(belief, kernel_of(case), case["Z"], jitter=0.0)
    marginal = f(case["Xs"])
    assert isinstance(marginal, dist.Normal)
    np.testing.assert_allclose(marginal.loc, case["mean"], atol=1e-9)
    np.testing.assert_allclose(marginal.scale**2, case["var"], atol=1e-9)
    joint = f.joint(case["Xs"])
    np.testing.assert_allclose(joint.loc, case["mean"], atol=1e-9)
    np.testing.assert_allclose(joint.covariance_matrix, case["cov"], atol=1e-9)


@pytest.mark.parametrize("case", cases("svgp"))
@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli_probit"])
def test_model_at_a_belief_is_the_bound(case, likelihood):
    """log density of the model at a belief = ELBO; forgetting the KL or the variance term is off by > 0.1."""
    belief = ngp.beliefs.Coupled(jnp.asarray(case["m"]), jnp.asarray(case["S_chol"]))
    seen = (
        ngp.likelihoods.Gaussian(np.sqrt(case["noise"]))
        if likelihood == "gaussian"
        else ngp.likelihoods.Bernoulli("probit")
    )
    y = case["y"] if likelihood == "gaussian" else case["labels"]

    def model():
        f = ngp.gp("f", kernel_of(case), case["Z"], jitter=0.0)
        with numpyro.plate("data", len(y)):
            ngp.observe("y", f(case["X"]), seen, obs=y)

    bound, _ = log_density(model, (), {}, {"f": belief})
    np.testing.assert_allclose(bound, case[f"elbo_{likelihood}"], atol=1e-9 if likelihood == "gaussian" else 1e-6)


@pytest.mark.parametrize("case", cases("sparse_mcmc"))
@pytest.mark.parametrize("likelihood", ["bernoulli_probit", "poisson"])
def test_model_at_a_point_is_the_sparse_mcmc_target(case, likelihood):
    seen = ngp.likelihoods.Poisson() if likelihood == "poisson" else ngp.likelihoods.Bernoulli("probit")
    y = case["counts"] if likelihood == "poisson" else case["labels"]

    def model():
        f = ngp.gp("f", kernel_of(case), case["Z"], jitter=0.0)
        with numpyro.plate("data", len(y)):
            ngp.observe("y", f(case["X"]), seen, obs=y)

    target, _ = log_density(model, (), {}, {"f": jnp.asarray(case["v"])})
    np.testing.assert_allclose(target, case[f"{likelihood}/target"], atol=1e-6)


@pytest.mark.long
def test_shapes_with_outputs_and_leading_axes(rng):
    Z, X = rng.normal(size=(5, 2)), rng.normal(size=(3, 4, 2))
    kernel = ngp.kernels.RBF(1.0, 1.0)
    one = process(jnp.asarray(rng.normal(size=5)), kernel, Z)
    assert one(X).batch_shape == (3, 4)
    assert one.joint(X).batch_shape == (3,)
    several = process(jnp.asarray(rng.normal(size=(2, 5))), kernel, Z, outputs=2)
    assert (several(X).batch_shape, several(X).event_shape) == ((3, 4), (2,))
    assert (several.joint(X).batch_shape, several.joint(X).event_shape) == ((3, 2), (4,))
    first = process(several.process.v[1], kernel, Z)
    np.testing.assert_allclose(several(X).base_dist.loc[..., 1], first(X).loc, rtol=1e-12)


def test_where_a_mean_is_read_it_is_said_that_it_is_no_function():
    """An integral of ``f(x).loc`` has no variance, and nothing in a program can tell it from one of a function."""
    said = " ".join(GaussianProcess.__call__.__doc__.split())
    assert "loses the variance of the belief" in said
    assert "Posterior.function_draws" in said


@pytest.mark.long
def test_mean_functions(rng):
    Z, X = rng.normal(size=(5, 2)), rng.normal(size=(4, 2))
    kernel = ngp.kernels.RBF(1.0, 1.0)
    zero = process(jnp.zeros(5), kernel, Z)(X)
    np.testing.assert_allclose(process(jnp.zeros(5), kernel, Z, mean=2.0)(X).loc, zero.loc + 2.0)
    np.testing.assert_allclose(process(jnp.zeros(5), kernel, Z, mean=lambda x: x[..., 0])(X).loc, X[:, 0])
    projected = process(jnp.zeros((2, 5)), kernel, Z, outputs=2, mean=ngp.means.identity(2))
    np.testing.assert_allclose(projected(X).base_dist.loc, X)
    np.testing.assert_allclose(projected.joint(X).loc, X.T)
    with pytest.raises(
        ValueError, match=r"mean must be a function whose value at X of shape \(4, 2\) has shape \(4,\)"
    ):
        process(jnp.zeros(5), kernel, Z, mean=lambda x: x)(X)


def at_own_inputs(value, **options):
    """A process called at its inducing inputs, eager, compiled with Z = X closed over, and apart; with the jitter."""
    Z = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)))
    kernel = ngp.kernels.Matern52(1.3, 0.7)
    at = functools.partial(process, value, kernel, jitter=1e-2, **options)
    called, named = (lambda Z, X: moments(at(Z)(X))), (lambda Z: moments(at(Z).at_inducing()))
    noisy = lambda Z: moments(at(Z).at_inducing(with_jitter=True))  # noqa: E731
    same = [called(Z, Z), jax.jit(lambda Z: called(Z, Z))(Z), called(Z, jnp.array(Z)), jax.jit(called)(Z, Z)]
    same += [named(Z), jax.jit(named)(Z)]
    return same, [noisy(Z), jax.jit(noisy)(Z)], np.asarray(kernel.matrix(Z)) + 1.3e-2 * np.eye(5)


def moments(f):
    return jnp.stack([f.mean, f.variance])


POINTS = [
    (jnp.arange(5.0), {"mean": lambda x: x[..., 0]}),
    (jnp.arange(10.0).reshape(2, 5), {"outputs": 2}),
    (jnp.arange(15.0).reshape(3, 1, 5), {}),  # whitened values that stand in a plate
]
BELIEFS = [
    (ngp.beliefs.Coupled(jnp.arange(5.0), 0.5 * jnp.eye(5)), {}),
    (ngp.beliefs.Orthogonal(jnp.ones((5, 2)), jnp.ones(5), jnp.arange(5.0), 0.5 * jnp.eye(5)), {}),
]


@pytest.mark.parametrize(("value", "options"), POINTS + BELIEFS)
def test_a_process_called_at_its_inducing_inputs_is_the_same_however_they_come(value, options):
    """With a jitter of 1e-2, a variance of eps in the place of eps - eps^2 (K + eps I)^-1 is off by 1e-4 and more."""
    (first, *others), _, _ = at_own_inputs(value, **options)
    for other in others:
        np.testing.assert_allclose(other, first, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("value", "options"), POINTS)
def test_a_point_at_inducing_is_known_and_has_the_jitter_in_its_kernel(value, options):
    """``u = L v`` of ``K + eps I``, with the mean; f(Z) is off by 1e-2, a factor transposed by 1."""
    _, named, gram = at_own_inputs(value, **options)
    values = np.asarray(value) @ np.linalg.cholesky(gram).T
    values = values[:, 0] if values.ndim == 3 else values.T
    if "mean" in options:
        values = values + np.random.default_rng(0).normal(size=(5, 2))[:, 0]
    for mean, variance in named:
        np.testing.assert_allclose(mean, values, atol=1e-12)
        np.testing.assert_array_equal(variance, np.zeros_like(values))


def test_a_belief_at_inducing_is_that_of_noisy_values():
    """``L S L^T`` on the diagonal, of ``K + eps I``: without the jitter it is off by 1e-3 and more."""
    _, named, gram = at_own_inputs(*BELIEFS[0][:1])
    factor = np.linalg.cholesky(gram)
    for mean, variance in named:
        np.testing.assert_allclose(mean, factor @ np.arange(5.0), atol=1e-12)
        np.testing.assert_allclose(variance, 0.25 * np.diag(gram), atol=1e-12)


@pytest.mark.long
def test_at_inducing_the_posterior_is_that_of_a_model_written_by_hand():
    """Density and gradients of labels, whitened values and hyper-parameters, without quadrature, to 1e-10."""
    rng = np.random.default_rng(0)
    X, y, v = jnp.asarray(rng.normal(size=(6, 2))), jnp.asarray(rng.integers(0, 2, 6)), jnp.asarray(rng.normal(size=6))

    def model():
        scale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
        f = ngp.gp("f", ngp.kernels.RBF(1.3, scale), X, jitter=1e-4)
        with numpyro.plate("data", 6):
            ngp.observe("y", f.at_inducing(with_jitter=True), ngp.likelihoods.Bernoulli(), obs=y)

    def hand():
        scale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
        v = numpyro.sample("f", dist.Normal(0.0, 1.0).expand([6]).to_event(1))
        squares = jnp.sum((X[:, None] - X[None]) ** 2, axis=-1)
        gram = 1.3 * jnp.exp(-0.5 * squares / scale**2) + 1.3e-4 * jnp.eye(6)
        with numpyro.plate("data", 6):
            numpyro.sample("y", dist.Bernoulli(logits=jnp.linalg.cholesky(gram) @ v), obs=y)

    def density(model, at):
        return log_density(model, (), {}, {"lengthscale": at[0], "f": at[1]})[0]

    at = (jnp.array(0.8), v)
    found, wanted = (jax.jit(jax.value_and_grad(lambda at, m=m: density(m, at)))(at) for m in (model, hand))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)
    found, wanted = (jax.jit(jax.hessian(lambda x, m=m: density(m, (x, v))))(at[0]) for m in (model, hand))
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_at_inducing_calls_no_kernel_again():
    calls = []

    def kernel(X1, X2):
        calls.append(X1.shape)
        return jnp.exp(-jnp.sum((X1[:, None] - X2[None]) ** 2, axis=-1))

    Z = jnp.arange(3.0)[:, None]
    f = process(jnp.zeros(3), kernel, Z)
    before = [shape for shape in calls if shape == (3, 1)]
    f.at_inducing()
    f(Z)
    assert [shape for shape in calls if shape == (3, 1)] == before


def noise_of(f, X, value):
    with handlers.seed(rng_seed=0), handlers.substitute(data={"e": value}):
        return f.draw("e", X)


@pytest.mark.long
def test_draw_is_independent_over_the_data_and_joint_over_axes_left_of_it(rng):
    """Same inputs on the left axis must give the same value: an independent draw (the classic bug) would not."""
    Z, X = rng.normal(size=(5, 1)), rng.normal(size=(4, 1))
    belief = ngp.beliefs.Coupled(jnp.asarray(rng.normal(size=5)), 0.4 * jnp.eye(5))
    f = process(belief, ngp.kernels.Matern52(1.0, 0.6), Z, jitter=1e-10)
    marginal = f(X)
    e = jnp.asarray(rng.normal(size=4))
    np.testing.assert_allclose(noise_of(f, X, e), marginal.loc + marginal.scale * e, rtol=1e-9)
    twice = jnp.stack([jnp.asarray(X), jnp.asarray(X)])
    values = noise_of(f, twice, jnp.asarray(rng.normal(size=(2, 4))))
    np.testing.assert_allclose(values[0], values[1], atol=1e-3)
    apart = jnp.stack([jnp.asarray(X), jnp.asarray(X) + 0.3])
    noise = jnp.asarray(rng.normal(size=(2, 4)))
    drawn = noise_of(f, apart, noise)
    for n in range(4):
        joint = f.joint(apart[:, n])
        dense = joint.loc + np.linalg.cholesky(joint.covariance_matrix) @ noise[:, n]
        np.testing.assert_allclose(drawn[:, n], dense, atol=1e-6)


@pytest.mark.long
def test_draw_with_outputs_is_a_draw_for_each_output(rng):
    Z, X = rng.normal(size=(5, 1)), jnp.asarray(rng.normal(size=(3, 4, 1)))
    v, noise = jnp.asarray(rng.normal(size=(2, 5))), jnp.asarray(rng.normal(size=(3, 4, 2)))
    kernel = ngp.kernels.Matern52(1.0, 0.6)
    both = noise_of(process(v, kernel, Z, outputs=2), X, noise)
    for p in range(2):
        np.testing.assert_allclose(both[..., p], noise_of(process(v[p], kernel, Z), X, noise[..., p]), atol=1e-9)


def test_points_in_a_plate_are_one_function_for_each_member(rng):
    X = jnp.asarray(rng.normal(size=(6, 1)))

    def model():
        with numpyro.plate("group", 3, dim=-2):
            f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), X[:4])
            with numpyro.plate("data", 6, dim=-1):
                return ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1)), f(X)

    v = jnp.asarray(rng.normal(size=(3, 1, 4)))
    with handlers.seed(rng_seed=0), handlers.substitute(data={"f": v}):
        y, marginal = model()
    assert y.shape == (3, 6)
    for group in range(3):
        alone = process(v[group, 0], ngp.kernels.RBF(1.0, 1.0), X[:4])(X)
        np.testing.assert_allclose(marginal.loc[group], alone.loc, rtol=1e-9)
        np.testing.assert_allclose(marginal.scale[group], alone.scale, rtol=1e-9)


def simple(X, y=None):
    s = numpyro.sample("noise", dist.LogNormal(-1.0, 0.5))
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), X[:3])
    with numpyro.plate("data", len(X)):
        return ngp.observe("y", f(X), ngp.likelihoods.Gaussian(s), obs=y)


@pytest.mark.long
@pytest.mark.parametrize("value", ["point", "belief"])
def test_handlers(rng, value):
    """scope, block, mask, scale, condition, substitute, replay and jit leave the site what it is."""
    X, y = jnp.asarray(rng.normal(size=(5, 1))), jnp.asarray(rng.normal(size=5))
    held = jnp.asarray(rng.normal(size=3))
    held = held if value == "point" else ngp.beliefs.Coupled(held, 0.5 * jnp.eye(3))
    params = {"noise": jnp.asarray(0.3), "f": held}
    base, _ = log_density(simple, (X, y), {}, params)
    jitted = jax.jit(lambda p: log_density(simple, (X, y), {}, p)[0])(params)
    np.testing.assert_allclose(jitted, base, rtol=1e-12)
    scoped, trace = log_density(handlers.scope(simple, "a"), (X, y), {}, {f"a/{k}": v for k, v in params.items()})
    np.testing.assert_allclose(scoped, base, rtol=1e-12)
    assert "a/f" in trace
    doubled, _ = log_density(handlers.scale(simple, 2.0), (X, y), {}, params)
    np.testing.assert_allclose(doubled, 2 * base, rtol=1e-12)
    masked, _ = log_density(handlers.mask(simple, mask=False), (X, y), {}, params)
    assert masked == 0.0
    traced = handlers.trace(handlers.seed(handlers.substitute(simple, data=params), 0)).get_trace(X, y)
    replayed = handlers.trace(handlers.seed(handlers.replay(simple, traced), 1)).get_trace(X, y)
    np.testing.assert_allclose(replayed["y"]["fn"].mean_latent, traced["y"]["fn"].mean_latent)
    if value == "point":
        conditioned = handlers.condition(simple, data={"f": held})
        np.testing.assert_allclose(
            log_density(conditioned, (X, y), {}, {"noise": params["noise"]})[0], base, rtol=1e-12
        )


@pytest.mark.long
def test_several_processes_in_one_model(rng):
    X = jnp.asarray(rng.normal(size=(5, 1)))

    def model():
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), X[:3])
        g = ngp.gp("g", ngp.kernels.Matern12(1.0, 1.0), X[:2])
        with numpyro.plate("data", 5):
            ngp.observe("y", (f(X), g(X)), ngp.likelihoods.HeteroscedasticGaussian(), obs=jnp.zeros(5))

    density, trace = log_density(
        model, (), {}, {"f": jnp.zeros(3), "g": ngp.beliefs.MeanField(jnp.zeros(2), jnp.ones(2))}
    )
    assert jnp.isfinite(density)
    assert set(trace) == {"f", "g", "data", "y"}


@pytest.mark.long
def test_prior_draws_have_the_prior_covariance():
    """20000 prior draws at Z = X: standard error of each entry about 0.01; unwhitened draws would be off by 0.5."""
    X = jnp.linspace(0.0, 2.0, 3)[:, None]
    kernel = ngp.kernels.RBF(1.5, 1.0)

    def draw(key):
        with handlers.seed(rng_seed=key):
            return ngp.gp("f", kernel, X)(X).loc

    values = jax.vmap(draw)(jax.random.split(jax.random.key(0), 20000))
    expected = 1.5 * np.exp(-0.5 * (np.linspace(0, 2, 3)[:, None] - np.linspace(0, 2, 3)) ** 2)
    np.testing.assert_allclose(np.cov(values.T), expected, atol=0.06)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.zeros(3)), ValueError, r"inducing must be an array of shape \(N, D\).*pass inducing\[:, None\]"),
        (lambda: ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.zeros((3, 1), int)), TypeError, "inducing must be floating point"),
        (lambda: ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.full((3, 1), jnp.nan)), ValueError, "inducing must be finite"),
        (lambda: ngp.gp("f", "rbf", jnp.zeros((3, 1))), TypeError, "kernel"),
        (lambda: ngp.gp(3, ngp.kernels.RBF(1.0, 1.0), jnp.zeros((3, 1))), TypeError, "name must be the name of a sample site"),
        (lambda: ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.zeros((3, 1)), outputs=0), ValueError, "outputs must be at least 1"),
        (lambda: ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.zeros((3, 1)), jitter=-1.0), ValueError, "jitter must be zero or positive"),
        (lambda: process(jnp.zeros(3), ngp.kernels.RBF(1.0, 1.0), jnp.ones((3, 1)))(jnp.zeros((2, 2))), ValueError, "X must be an array with 1 columns"),
        (lambda: process(jnp.zeros(3), ngp.kernels.RBF(1.0, 1.0), jnp.ones((3, 1)))(jnp.zeros((0, 1))), ValueError, "X must be a non-empty array"),
        (lambda: ngp.additive_gp("f", {"a": ngp.kernels.RBF(1.0, 1.0)}, {"a": jnp.ones((3, 1))}).predictor.at_inducing(), TypeError, r"process must be one made by gp\(\), with inducing inputs of its own"),
        (lambda: process(jnp.zeros(4), ngp.kernels.RBF(1.0, 1.0), jnp.ones((3, 1))), ValueError, r"shape \(3,\), but got shape \(4,\)"),
    ],
)  # fmt: skip
def test_bad_input(call, error, message):
    with handlers.seed(rng_seed=0), pytest.raises(error, match=message):
        call()


HERE = jnp.linspace(0.0, 1.0, 4)[:, None]
ROWS = jnp.array([[0.1], [0.45], [0.8]])
SEEN = jnp.array([[0.3, -0.5], [0.1, 0.2], [-0.4, 0.6]])


def own_kernels(X, y):
    """Two outputs of one site, each with a kernel and inducing inputs of its own."""
    scales = numpyro.sample("scales", dist.LogNormal(jnp.zeros(2), jnp.ones(2)).to_event(1))
    kernels = jax.vmap(ngp.kernels.Matern52)(jnp.array([1.0, 2.0]), scales)
    f = ngp.gp("f", kernels, jnp.stack([HERE, HERE + 0.2]), outputs=2)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)


def one_by_one(X, y):
    """The same as two sites."""
    scales = numpyro.sample("scales", dist.LogNormal(jnp.zeros(2), jnp.ones(2)).to_event(1))
    parts = zip("ab", (1.0, 2.0), scales, (HERE, HERE + 0.2), y.T, strict=True)
    processes = [(ngp.gp(name, ngp.kernels.Matern52(v, l), Z), own) for name, v, l, Z, own in parts]
    with numpyro.plate("data", len(X)):
        for f, own in processes:
            ngp.observe(f"y_{f.name}", f(X), ngp.likelihoods.Gaussian(0.3), obs=own)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["point", "belief"])
def test_outputs_with_kernels_of_their_own_are_single_processes(kind):
    """What NUTS, SVGD and SVI see, and their gradients: those of the two processes."""
    whitened = jnp.arange(8.0).reshape(2, 4) / 8
    if kind == "point":
        values, singles = {"f": whitened}, {"a": whitened[0], "b": whitened[1]}
    else:
        factors = jnp.stack([0.5 * jnp.eye(4), 0.3 * jnp.eye(4) + 0.1 * jnp.tril(jnp.ones((4, 4)))])
        values = {"f": ngp.beliefs.Coupled(whitened, factors)}
        singles = {name: ngp.beliefs.Coupled(whitened[p], factors[p]) for p, name in enumerate("ab")}
    at = lambda model, values: jax.value_and_grad(  # noqa: E731
        lambda scales: log_density(model, (ROWS, SEEN), {}, {"scales": scales, **values})[0]
    )(jnp.array([0.4, 0.9]))
    found, wanted = at(own_kernels, values), at(one_by_one, singles)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-10)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-8)


@pytest.mark.long
def test_fits_of_own_kernels_take_the_steps_of_single_processes():
    """AutoGP with natural gradients: the same losses, step by step, and functions of the fit."""
    losses = []
    for model, sites in ((own_kernels, "f"), (one_by_one, "ab")):
        guide = ngp.AutoGP(model, {site: ngp.guides.coupled(natural=True) for site in sites})
        optimiser = ngp.optim.natural_gradient(optax.adam(0.05), 0.5)
        svi = numpyro.infer.SVI(model, guide, optimiser, numpyro.infer.Trace_ELBO())
        with jax.numpy_rank_promotion("allow"):  # NumPyro's init_to_median promotes arrays of hyper-parameters
            result = svi.run(jax.random.key(0), 4, ROWS, SEEN, progress_bar=False)
        losses.append(result.losses)
        if sites == "f":
            posterior = ngp.Posterior.from_svi(model, guide, result.params)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-7)
    assert posterior.functions(jax.random.key(0), 2, ROWS, SEEN, num_features=8)(ROWS).shape == (2, 3, 2)


@pytest.mark.long
def test_functions_of_own_kernels_are_those_of_single_processes():
    """With the same features and noise; the point is that of each output."""
    kernels = ngp.kernels.stack([ngp.kernels.Periodic(1.0, 0.7, 2.0), ngp.kernels.Periodic(2.0, 0.5, 3.0)])
    value = jnp.arange(8.0).reshape(2, 4) / 8
    normal = lambda name, shape: jnp.broadcast_to(jnp.linspace(-1.0, 1.0, shape[-1]), shape)  # noqa: E731
    both = function_draw(process(value, kernels, HERE, outputs=2), jax.random.key(0), 40, normal)(ROWS)
    for p in range(2):
        kernel = jax.tree.map(lambda leaf, p=p: leaf[p], kernels)
        single = function_draw(process(value[p], kernel, HERE), jax.random.key(0), 40, normal)(ROWS)
        np.testing.assert_allclose(both[:, p], single, rtol=1e-9)


@pytest.mark.long
def test_a_draw_and_a_joint_of_own_kernels():
    kernels = ngp.kernels.stack([ngp.kernels.RBF(1.0, 0.7), ngp.kernels.RBF(2.0, 0.2)])
    f = process(jnp.ones((2, 4)), kernels, HERE, outputs=2)
    single = process(jnp.ones(4), ngp.kernels.RBF(2.0, 0.2), HERE)
    assert f(ROWS).event_shape == (2,)
    np.testing.assert_allclose(f(ROWS).mean[:, 1], single(ROWS).mean, rtol=1e-10)
    np.testing.assert_allclose(f.joint(ROWS).mean[1], single.joint(ROWS).mean, rtol=1e-10)
    with handlers.seed(rng_seed=0):
        assert f.draw("noise", jnp.stack([ROWS, ROWS + 1])).shape == (2, 3, 2)


def test_wrong_axes_of_batches_are_named():
    batch = ngp.kernels.stack([ngp.kernels.RBF(1.0, 0.7)] * 2)
    with handlers.seed(rng_seed=0):
        with pytest.raises(ValueError, match="outputs must be 2, as the batch of kernels has a leading axis of 2"):
            ngp.gp("f", batch, HERE)
        with pytest.raises(ValueError, match="outputs must be 2"):
            ngp.gp("f", batch, HERE, outputs=3)
        with pytest.raises(ValueError, match=r"inducing must be of shape \(M, D\), shared, or \(2, M, D\)"):
            ngp.gp("f", batch, jnp.stack([HERE] * 3), outputs=2)
    with pytest.raises(ValueError, match=r"the value of site 'f' must be one array \(P, M\)"):
        process(jnp.ones((5, 2, 4)), batch, HERE, outputs=2)(ROWS)


@pytest.mark.long
@pytest.mark.parametrize("shared", [True, False], ids=["shared kernel", "own kernels"])
@pytest.mark.parametrize("kind", ["point", "coupled", "orthogonal"])
def test_rows_that_name_their_output(kind, shared):
    """The values of all outputs at all rows, of which each row has one; derivatives too."""
    mean, factor = jnp.arange(8.0).reshape(2, 4) / 8, jnp.stack([0.5 * jnp.eye(4), 0.2 * jnp.eye(4)])
    value = {"point": mean, "coupled": ngp.beliefs.Coupled(mean, factor)}
    value["orthogonal"] = ngp.beliefs.Orthogonal(ROWS + 0.05, jnp.ones((2, 3)), mean, factor)
    kernels = ngp.kernels.stack([ngp.kernels.RBF(1.0, 0.7), ngp.kernels.RBF(2.0, 0.2)])
    levels = ngp.means.Constant(jnp.array([3.0, -3.0]))
    output, X = jnp.array([1, 0, 0, 1, 1]), jnp.linspace(-0.2, 1.2, 5)[:, None]

    def moments(kernels, chosen):
        f = process(value[kind], kernels, HERE, outputs=2, mean=levels)
        found = f.at(output, X) if chosen else f(X).base_dist
        pick = (lambda a: a) if chosen else (lambda a: jnp.take_along_axis(a, output[:, None], 1)[:, 0])
        return jnp.sum(pick(found.mean) * jnp.arange(5.0)) + jnp.sum(pick(found.variance)), pick(found.mean)

    kernels = ngp.kernels.RBF(1.0, 0.7) if shared else kernels
    (value_at, each), slope = jax.value_and_grad(moments, has_aux=True)(kernels, True)
    (wanted, every), other = jax.value_and_grad(moments, has_aux=True)(kernels, False)
    np.testing.assert_allclose(each, every, rtol=1e-9)
    np.testing.assert_allclose(value_at, wanted, rtol=1e-9)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7), slope, other)


def test_wrong_rows_of_outputs_are_named():
    f = process(jnp.ones((2, 4)), ngp.kernels.RBF(1.0, 0.7), HERE, outputs=2)
    with pytest.raises(ValueError, match="output must be from 0 to 1, but got 0 to 2"):
        f.at(jnp.array([0, 1, 2]), ROWS)
    with pytest.raises(ValueError, match=r"output must be whole numbers of shape \(3,\), one for each row of X"):
        f.at(jnp.array([0.0, 1.0, 1.0]), ROWS)
    with pytest.raises(TypeError, match="the process must be one with outputs, to choose from"):
        process(jnp.ones(4), ngp.kernels.RBF(1.0, 0.7), HERE).at(jnp.array([0, 0, 0]), ROWS)
