"""A belief that follows its basis, against dense NumPy and the closed-form optimum; its natural steps against dense ones."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import numpyro_gp as ngp
from numpyro_gp.beliefs import Basis, Conditional, coupled_optimum
from numpyro_gp.beliefs.basis import Frame
from numpyro_gp.beliefs.conditional import _posterior
from numpyro_gp.beliefs.gaussian_data import positive_part, pseudo_data_of
from numpyro_gp.kernels import Matern52

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.uniform(-1, 1, (12, 2)))
Y = jnp.asarray(np.sin(3 * X[:, 0]) + 0.3 * RNG.normal(size=12))
Z = jnp.asarray(RNG.uniform(-1, 1, (5, 2)))
HALF = RNG.normal(size=(5, 3))
SHIFT, PRECISION = jnp.asarray(RNG.normal(size=5)), jnp.asarray(HALF @ HALF.T)
GRID = np.linspace(-1, 1, 60)
LEVEL = jnp.asarray(RNG.normal(size=5))


def basis_at(lengthscale=0.7, variance=1.3, level=None):
    found = Basis.build(Matern52(variance, lengthscale), Z)
    return found if level is None else Basis(**{**vars(found), "level": level})


def dense(basis, shift=SHIFT, precision=PRECISION):
    """Mean and covariance of the values ``u`` given pseudo-data, in NumPy."""
    gram, level = np.asarray(basis.gram), 0.0 if basis.level is None else np.asarray(basis.level)
    covariance = np.linalg.inv(np.linalg.inv(gram) + precision)
    return covariance @ (np.asarray(shift) + np.linalg.solve(gram, level * np.ones(len(gram)))) - level, covariance


@pytest.mark.parametrize("level", [None, LEVEL])
@pytest.mark.parametrize("lengthscale", [0.4, 1.5])
def test_marginals_joint_and_kl_are_those_of_dense_algebra(level, lengthscale):
    basis, belief = basis_at(lengthscale, level=level), Conditional(SHIFT, PRECISION)
    mean, covariance = dense(basis)
    gram = np.asarray(basis.gram)
    pull = np.linalg.solve(gram, np.asarray(basis.kernel.matrix(Z, X))).T
    whole = basis.kernel.matrix(X) - pull @ (gram - covariance) @ pull.T
    joint = belief.joint(basis, X)
    np.testing.assert_allclose(joint.mean, pull @ mean, atol=1e-9)
    np.testing.assert_allclose(joint.covariance, whole, atol=1e-9)
    for found, wanted in zip(belief.marginals(basis, X), (pull @ mean, np.diagonal(whole)), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-9)
    inverse = np.linalg.inv(gram)
    logs = np.linalg.slogdet(gram)[1] - np.linalg.slogdet(covariance)[1]
    kl = 0.5 * (np.trace(inverse @ covariance) + mean @ inverse @ mean - 5 + logs)
    np.testing.assert_allclose(belief.kl(basis), kl, rtol=1e-8)
    assert bool(belief.is_whitened(basis))


@pytest.mark.long
def test_nothing_said_is_the_prior_with_finite_gradients():
    twice = jnp.concatenate([Z, Z[:1]])  # two rows that coincide

    def total(theta, shift, precision, is_natural):
        basis = Basis.build(Matern52(theta[0], theta[1]), twice)
        belief = Conditional(shift, precision, is_natural)
        mean, variance = belief.marginals(basis, jnp.concatenate([X, twice]))
        return belief.kl(basis) + jnp.sum(mean) + jnp.sum(variance)

    for is_natural in (False, True):
        basis, belief = basis_at(), Conditional(jnp.zeros(5), jnp.zeros((5, 5)), is_natural)
        assert abs(float(belief.kl(basis))) < 1e-12
        np.testing.assert_allclose(belief.marginals(basis, X).variance, 1.3, rtol=1e-12)
        slopes = jax.jit(jax.grad(total, (0, 1, 2)), static_argnums=3)(
            jnp.array([1.3, 0.7]), jnp.zeros(6), jnp.zeros((6, 6)), is_natural
        )
        assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in slopes)


@pytest.mark.long
def test_gradients_of_hyper_parameters_and_level_are_the_ordinary_ones():
    """A term that the written rule forgets, of the level or of the factor, is off by more than 1e-2."""

    def value(theta, level, is_natural):
        basis, noise = basis_at(theta[1], theta[0], level), None if theta.size == 2 else theta[2]
        belief = Conditional(SHIFT, PRECISION, is_natural, noise)
        mean, variance = belief.marginals(basis, X)
        draws = belief.whitened(basis).scale_tril
        return belief.kl(basis) + jnp.sum(jnp.sin(mean)) + jnp.sum(variance**2) + jnp.sum(jnp.cos(draws))

    value = jax.jit(value, static_argnums=2)
    slope = jax.jit(jax.grad(value, (0, 1)), static_argnums=2)
    for theta in (jnp.array([1.3, 0.7, 0.6]), jnp.array([1.3, 0.7])):  # with a noise, and without
        found, wanted = (slope(theta, LEVEL, flag) for flag in (True, False))
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)
    for at, step in enumerate(1e-5 * jnp.eye(2)):
        apart = value(theta + step, LEVEL, True) - value(theta - step, LEVEL, True)
        np.testing.assert_allclose(found[0][at], apart / 2e-5, rtol=1e-6)


@pytest.mark.parametrize("level", [None, LEVEL])
def test_the_natural_step_is_the_dense_dual_one(level):
    """``(1 - rho)`` of what was said and ``rho`` of what the data say at the present marginals, section 14.3."""
    basis, likelihood, rho = basis_at(level=level), ngp.likelihoods.Poisson(), 0.3
    counts = jnp.asarray(RNG.poisson(2.0, 12).astype(float))
    at_rows = 0.0 if level is None else jnp.linspace(-1.0, 1.0, 12)  # the mean function at the data

    def loss(shift, precision):
        belief = Conditional(shift, precision, is_natural=True)
        mean, variance = belief.marginals(basis, X)
        return belief.kl(basis) - jnp.sum(likelihood.expected_log_prob(counts, at_rows + mean, variance))

    d_shift, d_precision = jax.grad(loss, (0, 1))(SHIFT, PRECISION)
    gram = np.asarray(basis.gram)
    pull = np.linalg.solve(gram, np.asarray(basis.kernel.matrix(Z, X)))
    mean, variance = Conditional(SHIFT, PRECISION).marginals(basis, X)
    expected = lambda m, s: jnp.sum(likelihood.expected_log_prob(counts, at_rows + m, s))  # noqa: E731
    slope, curve = map(np.asarray, jax.grad(expected, (0, 1))(mean, variance))
    weight = -2 * curve
    base = 0.0 if level is None else pull.T @ np.asarray(level)  # what the values of the mean function say at the rows
    target = slope + weight * (np.asarray(mean) + base)
    np.testing.assert_allclose(SHIFT - rho * d_shift, (1 - rho) * SHIFT + rho * pull @ target, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(
        PRECISION - rho * d_precision, (1 - rho) * PRECISION + rho * (pull * weight) @ pull.T, rtol=1e-7, atol=1e-8
    )


def regression(X, y=None, mean=None):
    f = ngp.gp("f", Matern52(1.3, 0.7), Z, mean=mean)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)


@pytest.mark.long
def test_one_whole_step_lands_on_the_collapsed_optimum():
    for mean in (None, 0.4):
        guide = ngp.AutoGP(lambda X, y, mean=mean: regression(X, y, mean), {"f": ngp.guides.conditional()})
        svi = SVI(guide.model, guide, ngp.optim.natural_gradient(optax.adam(0.01), 1.0), Trace_ELBO())
        state, _ = svi.update(svi.init(jax.random.key(0), X, Y), X, Y)
        best, bound = coupled_optimum(Matern52(1.3, 0.7), Z, X, Y - (mean or 0.0), 0.09)
        assert abs(float(svi.evaluate(state, X, Y)) + float(bound)) < 1e-8
        level = None if mean is None else jnp.full(5, mean)
        found = guide.beliefs(svi.get_params(state))["f"].whitened(basis_at(level=level))
        np.testing.assert_allclose(found.mean, best.mean, atol=1e-8)
        np.testing.assert_allclose(found.scale_tril, best.scale_tril, atol=1e-8)


def with_noise(X, y=None):
    f = ngp.gp("f", Matern52(1.3, 0.7), X)
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.5))
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)


@pytest.mark.long
def test_pseudo_data_in_units_of_the_noise_are_exact_at_every_noise():
    """One step at one noise; what keeps the noise of that step is off by 0.1 and more at the others."""
    guide = ngp.AutoGP(with_noise, {"f": ngp.guides.conditional(noise="noise")}, rest=AutoNormal)
    svi = SVI(with_noise, guide, ngp.optim.natural_gradient(optax.sgd(0.0), 1.0), Trace_ELBO())
    state, _ = svi.update(svi.init(jax.random.key(0), X, Y), X, Y)
    params = svi.get_params(state)
    for shift in (0.0, 1.0):  # of the log noise, away from where the step was
        moved = params | {"noise_auto_loc": params["noise_auto_loc"] + shift}
        values = guide.global_values(jax.random.key(1), moved)
        own, _ = coupled_optimum(Matern52(1.3, 0.7), X, X, Y, values["noise"] ** 2)
        found = values["f"].whitened(Basis.build(Matern52(1.3, 0.7), X))
        np.testing.assert_allclose(found.mean, own.mean, atol=1e-7)
        np.testing.assert_allclose(found.scale_tril, own.scale_tril, atol=1e-7)
        medians = guide.median(moved, X, Y)
        best, _ = coupled_optimum(Matern52(1.3, 0.7), X, X, Y, medians["noise"] ** 2)
        np.testing.assert_allclose(medians["f"], best.mean, atol=1e-7)
        past = ngp.pseudo_data(guide, moved, X, Y)["f"]
        then = Conditional(past.shift, past.precision).whitened(Basis.build(Matern52(1.3, 0.7), X))
        np.testing.assert_allclose(then.mean, best.mean, atol=1e-7)


def test_the_noise_is_a_number_or_one_for_each_output():
    twice = (jnp.stack([SHIFT, SHIFT]), jnp.stack([PRECISION, PRECISION]))
    belief = Conditional(*twice, noise=jnp.array([0.5, 2.0])).at(basis_at())
    for p, noise in enumerate((0.5, 2.0)):
        own = Conditional(SHIFT / noise**2, PRECISION / noise**2).at(basis_at())
        np.testing.assert_allclose(belief.mean[p], own.mean, rtol=1e-12)
        np.testing.assert_allclose(belief.scale_tril[p], own.scale_tril, atol=1e-12)


@pytest.mark.long
def test_steps_in_float32_keep_the_precision_symmetric():
    """Else a fit of hundred steps held one that `Conditional` itself refuses: entries differed by 0.002."""
    rows, at = (jnp.asarray(values, jnp.float32) for values in (GRID[:, None], GRID[::2, None]))
    basis = jax.jit(Basis.build)(Matern52(jnp.float32(1.0), jnp.float32(1.0)), at, 1e-4)
    spread = lambda precision: Conditional(jnp.ones(len(at), jnp.float32), precision, is_natural=True)  # noqa: E731
    slope = jax.jit(jax.grad(lambda precision: jnp.sum(spread(precision).marginals(basis, rows).variance ** 2)))
    step = slope(jnp.zeros((len(at), len(at)), jnp.float32))
    assert float(jnp.abs(step).max()) > 1.0
    np.testing.assert_array_equal(step, step.T)


def test_what_is_refused():
    for call, message in (
        (lambda: Conditional(SHIFT, PRECISION).whitened(), "got a Conditional without it. Draw functions or data"),
        (lambda: Conditional(SHIFT, PRECISION.at[0, 1].add(1.0)), r"precision must be symmetric.*Pass \(precision \+"),
        (lambda: Conditional(SHIFT, PRECISION, noise=jnp.ones(3)), r"noise must be a number, .* but got shape \(3,\)"),
        (lambda: Conditional(SHIFT, PRECISION, noise_site="sd").kl(basis_at()), "must be at a value of 'sd', but got"),
        (
            lambda: Conditional(SHIFT, PRECISION, noise_site="sd").given({"noise": 0.1}),
            r"one of \['noise'\], but got 's",
        ),
        (lambda: ngp.guides.conditional(noise=0.1), "noise must be the name of a site, but got a float. Name the site"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            call()


LEADS = [((), ()), ((2, 3), (2, 1)), ((1, 3), (2, 3))]  # of pseudo-data, and of factors


def problem(rng, lead, own, size=4):
    half = rng.normal(size=(*lead, size, size + 2))
    square = rng.normal(size=(*own, size, size))
    factor = np.linalg.cholesky(square @ np.swapaxes(square, -1, -2) + 0.5 * np.eye(size))
    precision = half @ np.swapaxes(half, -1, -2)
    return rng.normal(size=(*lead, size)), precision, factor, rng.normal(size=(*own, size))


def whitened_given(shift, precision, factor, level=None):
    """Mean and lower root of the covariance that `Conditional` gives the whitened values, of every member."""
    level = jnp.zeros(shift.shape[-1]) if level is None else level
    lead = np.broadcast_shapes(shift.shape[:-1], factor.shape[:-2])
    function = lambda *parts: _posterior(parts[0], parts[1], Frame(parts[2], None, None), parts[3], None)  # noqa: E731
    for _ in lead:
        function = jax.vmap(function)
    arrays = [(shift, 1), (precision, 2), (factor, 2), (level, 1)]
    found = function(*(jnp.broadcast_to(array, lead + array.shape[array.ndim - rank :]) for array, rank in arrays))
    return found.mean, found.root


@pytest.mark.parametrize(("lead", "own"), LEADS)
def test_posterior_is_that_of_the_values_themselves(rng, lead, own):
    """And its pseudo-data are those that it was made of."""
    shift, precision, factor, level = problem(rng, lead, own)
    mean, root = whitened_given(*map(jnp.asarray, (shift, precision, factor, level)))
    # In u itself: precision K^-1 + Lambda, shift K^-1 level + shift. A level that is forgotten is off by 1e-1.
    prior = np.linalg.inv(factor @ np.swapaxes(factor, -1, -2))
    covariance = np.linalg.inv(prior + precision)
    u = (covariance @ (shift[..., None] + prior @ level[..., None]))[..., 0]
    np.testing.assert_allclose(level + (factor @ np.asarray(mean)[..., None])[..., 0], u, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(root, np.tril(root), atol=0)
    found = factor @ (root @ np.swapaxes(root, -1, -2)) @ np.swapaxes(factor, -1, -2)
    np.testing.assert_allclose(found, covariance, rtol=1e-8, atol=1e-9)
    again = pseudo_data_of(mean, root, jnp.asarray(factor), jnp.asarray(level))
    for one, wanted in zip(again, (shift, precision), strict=True):
        np.testing.assert_allclose(one, np.broadcast_to(wanted, one.shape), rtol=1e-6, atol=1e-6)


def test_directions_wider_than_the_prior_are_left_to_it(rng):
    factor, mean = np.tril(rng.normal(size=(3, 3))) + 3 * np.eye(3), rng.normal(size=3)
    scale = np.diag([0.5, 2.0, 1.0])
    shift, precision = pseudo_data_of(*map(jnp.asarray, (mean, scale, factor)))
    back = factor.T @ np.asarray(precision) @ factor
    np.testing.assert_allclose(back, np.diag([3.0, 0.0, 0.0]), atol=1e-12)
    assert np.linalg.eigvalsh(precision).min() > -1e-12
    np.testing.assert_allclose(whitened_given(shift, precision, jnp.asarray(factor))[0], mean, atol=1e-12)


def test_negative_eigenvalues_become_zero(rng):
    vectors = np.linalg.qr(rng.normal(size=(2, 4, 4)))[0]
    values = np.array([[-2.0, 0.5, 1.0, 3.0], [0.1, 0.2, 0.3, 0.4]])
    whole, wanted = ((vectors * v[:, None]) @ np.swapaxes(vectors, -1, -2) for v in (values, np.maximum(values, 0)))
    np.testing.assert_allclose(positive_part(jnp.asarray(whole)), wanted, atol=1e-12)
