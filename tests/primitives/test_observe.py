"""Observations: one term for each datum, predictive draws, and data of the wrong shape or kind."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import numpyro_gp as ngp

NORMAL = dist.Normal(jnp.array([0.1, -0.4, 0.7]), 0.5)


def replicated(y, mask=True):
    with numpyro.plate("data", 3), numpyro.plate("replicates", 2, dim=-2), handlers.mask(mask=mask):
        ngp.observe("y", NORMAL, ngp.likelihoods.Gaussian(0.3), obs=y)


@pytest.mark.long
def test_replicates_stand_in_a_plate_of_their_own():
    """Each of them has its term ``E log N(y; f, 0.3^2)``, by hand; masks hide single ones."""
    y = jnp.array([[0.0, 1.0, 2.0], [0.5, -1.0, 0.2]])
    expected = -0.5 * (np.log(2 * np.pi * 0.09) + ((np.asarray(y) - np.asarray(NORMAL.loc)) ** 2 + 0.25) / 0.09)
    mask = jnp.array([[True, False, True], [False, True, True]])
    for given, wanted in ((True, expected), (mask, expected * np.asarray(mask))):
        fn = handlers.trace(replicated).get_trace(y, given)["y"]["fn"]
        np.testing.assert_allclose(fn.log_prob(y), wanted, rtol=1e-12)
    drawn = handlers.trace(handlers.seed(replicated, 0)).get_trace(None)["y"]["value"]
    assert drawn.shape == (2, 3)


@pytest.mark.long
def test_masks_hide_single_outputs_of_a_datum():
    f, y = dist.Normal(jnp.zeros((3, 2)), 0.5).to_event(1), jnp.array([[0.0, 1.0], [2.0, -1.0], [0.3, 0.1]])

    def model(mask):
        with numpyro.plate("data", 3), handlers.mask(mask=mask):
            ngp.observe("y", f, ngp.likelihoods.Gaussian(0.3), obs=y)

    single = -0.5 * (np.log(2 * np.pi * 0.09) + (np.asarray(y) ** 2 + 0.25) / 0.09)
    mask = np.array([[True, False], [True, True], [False, False]])
    for given, wanted in ((mask, (single * mask).sum(-1)), (mask[:, 0], single.sum(-1) * mask[:, 0])):
        fn = handlers.trace(model).get_trace(jnp.asarray(given))["y"]["fn"]
        np.testing.assert_allclose(fn.log_prob(y), wanted, rtol=1e-12)
    with pytest.raises(ValueError, match=r"the mask of site 'y' must be of the shape of its data, \(3,\), but got one"):
        handlers.trace(model).get_trace(jnp.asarray(mask[:, :1]))


def test_axes_of_data_that_no_plate_declares():
    message = r"obs of site 'y' must be of the shape of f in its plates, \(3,\), but got shape \(2, 3\).*replicates"
    with numpyro.plate("data", 3), pytest.raises(ValueError, match=message):
        ngp.observe("y", NORMAL, ngp.likelihoods.Gaussian(0.3), obs=jnp.zeros((2, 3)))


def test_a_process_inside_the_plate_of_the_data_is_refused():
    X = jnp.zeros((3, 1))

    def model(y, outputs=None):
        with numpyro.plate("data", 3):
            f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), X[:1], outputs=outputs)
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)

    def pair(y):
        with numpyro.plate("data", 3):
            f, g = (ngp.gp(name, ngp.kernels.RBF(1.0, 1.0), X[:1]) for name in "fg")
            ngp.observe("y", (f(X), g(X)), ngp.likelihoods.HeteroscedasticGaussian(), obs=y)

    message = "members of plate 'data' on axis -1, where the plate is, but got them on axis -2. Make one process"
    for y, outputs in ((None, None), (jnp.zeros(3), None), (jnp.zeros((3, 2)), 2)):
        with pytest.raises(ValueError, match=message), handlers.seed(rng_seed=0):
            model(y, outputs)
    with pytest.raises(ValueError, match=message), handlers.seed(rng_seed=0):
        pair(jnp.zeros(3))
    with pytest.raises(ValueError, match=message), handlers.seed(rng_seed=0), numpyro.plate("data", 3):
        full = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.arange(3.0)[:, None])  # as many functions as rows
        ngp.observe("y", full.at_inducing(with_jitter=True), ngp.likelihoods.Gaussian(0.3), obs=jnp.zeros(3))

    def groups(y):
        with numpyro.plate("data", 3, dim=-2):
            f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), X[:1])
            with numpyro.plate("rows", 3):
                return ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)

    with handlers.seed(rng_seed=0):
        assert groups(jnp.zeros((3, 3))).shape == (3, 3)


def test_plates_that_do_not_fit_the_rows_are_named():
    """Rows that a subsampled plate has not cut, and a plate on another axis, which would count data once for each."""

    def model(y, *size, **options):
        with numpyro.plate("data", *size, **options):
            ngp.observe("y", NORMAL, ngp.likelihoods.Gaussian(0.3), obs=y)

    message = r"f of site 'y' must be of the rows of its plates, but got shape \(3,\).*Pass the rows of a subsampled"
    for size in ((4,), (9, 2)):
        with pytest.raises(ValueError, match=message), handlers.seed(rng_seed=0):
            model(None, *size)
    message = r"obs of site 'y' must be with an axis of each plate, \['data'\] as well, but got shape \(3,\).*dim=-1"
    with pytest.raises(ValueError, match=message), handlers.seed(rng_seed=0):
        model(jnp.zeros(3), 3, dim=-2)


@pytest.mark.long
def test_a_callable_over_several_outputs_takes_all_or_each():
    """By the shape of what it returns: a softmax over the outputs, or the same scalar likelihood for each."""
    f = dist.Normal(jnp.array([[0.1, 0.4], [-0.3, 0.2], [1.0, 0.0]]), 0.5).to_event(1)

    def site(likelihood, y):
        with handlers.trace() as trace:
            ngp.observe("y", f, likelihood, obs=y)
        return trace["y"]["fn"].log_prob(y)

    labels, reals = jnp.array([0.0, 1.0, 1.0]), jnp.array([[0.0, 1.0], [0.5, 0.5], [1.0, 2.0]])
    softmax = site(lambda f: dist.Categorical(logits=f), labels.astype(int))
    np.testing.assert_allclose(softmax, site(ngp.likelihoods.Softmax(2), labels), atol=1e-6)
    gaussian = site(lambda f: dist.Normal(f, 0.3), reals)
    np.testing.assert_allclose(gaussian, site(ngp.likelihoods.Gaussian(0.3), reals), atol=1e-9)
    pair = tuple(dist.Normal(f.base_dist.loc[:, c], 0.5) for c in range(2))
    two = ngp.sites.Observation(pair, ngp.likelihoods.HeteroscedasticGaussian()).log_prob(reals[:, 0])
    with handlers.trace() as trace:
        ngp.observe("y", pair, lambda f, g: dist.Normal(f, jnp.exp(0.5 * g)), obs=reals[:, 0])
    np.testing.assert_allclose(trace["y"]["fn"].log_prob(reals[:, 0]), two, atol=1e-6)


def test_a_process_that_was_given_its_data_takes_no_more():
    """Marginals would ignore how rows vary together, and the process would not learn from what is scored by them."""
    X, y, rbf = jnp.linspace(0.0, 1.0, 3)[:, None], jnp.ones(3), ngp.kernels.RBF(1.0, 1.0)
    f, normal = ngp.gp_regression("r", rbf, X, 0.1, obs=y), ngp.likelihoods.Gaussian(0.3)
    with numpyro.plate("group", 2):
        members = ngp.gp_regression("r", rbf, X, 0.1, obs=jnp.ones((2, 3)))
    message = r"f of site 'y' must be of a `gp`, but got that of gp_regression 'r', given its own data"
    for found, likelihood in (
        (f(X), normal),
        (f.at_inducing(), normal),
        ((f(X), f(X)), ngp.likelihoods.HeteroscedasticGaussian()),
        (members.at(jnp.array([0, 1, 1]), X), normal),
    ):
        with numpyro.plate("data", 3), handlers.seed(rng_seed=0):
            with pytest.raises(ValueError, match=message):
                ngp.observe("y", found, likelihood, obs=y)
            assert ngp.observe("y", found, likelihood).shape == (3,)  # a prediction


@pytest.mark.parametrize(
    ("offset", "first", "second"),
    [
        (3.0, 3.0, 0.0),
        ((3.0, None), 3.0, 0.0),
        ((None, jnp.arange(3.0)), 0.0, np.arange(3.0)),
        (jnp.array([[3.0, 1.0]] * 3), 3.0, 1.0),
    ],
)
def test_an_offset_is_that_of_the_mean_where_the_other_function_is_a_log_variance(offset, first, second):
    with handlers.seed(rng_seed=0), handlers.trace() as trace, numpyro.plate("data", 3):
        ngp.observe("y", (NORMAL, NORMAL), ngp.likelihoods.HeteroscedasticGaussian(), offset=offset)
    wanted = np.stack([NORMAL.loc + first, NORMAL.loc + second], axis=-1)
    np.testing.assert_allclose(trace["y"]["fn"].mean_latent, wanted)


def test_an_offset_for_all_functions_of_a_likelihood_is_refused_where_none_is_the_mean():
    own, two = lambda f, g: dist.Gamma(jnp.exp(f), jnp.exp(g)), (NORMAL, NORMAL)
    with pytest.raises(ValueError, match=r"offset of site 'y' must be one for each of the 2 latent functions"):
        ngp.observe("y", two, own, offset=jnp.ones(3))
    with pytest.raises(ValueError, match=r"offset of site 'y' must be of 2 parts, one for each function, but got 1"):
        ngp.observe("y", two, own, offset=(jnp.ones(3),))
