"""What was learnt, observed again: against dense algebra, and against a fit of all data at once."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.util import log_density

import numpyro_gp as ngp
from numpyro_gp.beliefs import Coupled
from numpyro_gp.kernels import RBF, Matern52

RNG = np.random.default_rng(1)
X = jnp.asarray(RNG.uniform(-1, 1, (14, 1)))
Y = jnp.asarray(np.sin(3 * X[:, 0]) + 0.2 * RNG.normal(size=14))
Z, OLD = jnp.linspace(-1, 1, 5)[:, None], jnp.asarray(RNG.uniform(-1, 1, (3, 1)))
HALF = RNG.normal(size=(3, 3))
PAST = ngp.PseudoData(OLD, jnp.asarray(RNG.normal(size=3)), jnp.asarray(HALF @ HALF.T))
BELIEF = Coupled(jnp.asarray(RNG.normal(size=5)), 0.4 * jnp.eye(5))
KERNEL = Matern52(1.3, 0.6)


def said(past, mean, covariance):
    shift, precision = np.asarray(past.shift), np.asarray(past.precision)
    return shift @ mean - 0.5 * (mean @ precision @ mean + np.sum(precision * covariance))


def term(value, past=PAST, **options):
    """The term of ``recall`` where the site holds a value, and the joint moments of the process at its inputs."""
    with handlers.trace() as trace, handlers.substitute(data={"f": value}), handlers.seed(rng_seed=0):
        f = ngp.gp("f", KERNEL, Z, jitter=1e-9, **options)
        ngp.recall("yesterday", f, past)
    return trace["yesterday"]["fn"].log_prob(trace["yesterday"]["value"]), f.joint(OLD)


@pytest.mark.parametrize("value", [BELIEF, BELIEF.mean])
@pytest.mark.parametrize("mean", [None, 0.7])
def test_the_term_is_that_of_dense_algebra(value, mean):
    found, joint = term(value, mean=mean)
    np.testing.assert_allclose(
        found, said(PAST, np.asarray(joint.mean), np.asarray(joint.covariance_matrix)), rtol=1e-6
    )


@pytest.mark.long
def test_outputs_and_members_add_and_stand_apart():
    several = Coupled(jnp.stack([BELIEF.mean, -BELIEF.mean]), jnp.stack([BELIEF.scale_tril, 0.5 * BELIEF.scale_tril]))
    past = ngp.PseudoData(OLD, jnp.stack([PAST.shift, 3 * PAST.shift]), jnp.stack([PAST.precision, PAST.precision]))
    singles = [
        term(Coupled(several.mean[p], several.scale_tril[p]), ngp.PseudoData(OLD, past.shift[p], past.precision[p]))[0]
        for p in range(2)
    ]
    np.testing.assert_allclose(term(several, past, outputs=2)[0], sum(singles), rtol=1e-9)
    own = ngp.PseudoData(jnp.stack([OLD, OLD]), past.shift, past.precision)
    np.testing.assert_allclose(term(several, own, outputs=2)[0], sum(singles), rtol=1e-9)
    with numpyro.plate("group", 2):
        np.testing.assert_allclose(term(several, past)[0], jnp.stack(singles), rtol=1e-9)


@pytest.mark.long
def test_components_are_recalled_together():
    kernels = {"a": RBF(1.0, 0.5).on(0), "b": RBF(0.7, 0.9).on(1)}
    at, old = jnp.asarray(RNG.uniform(-1, 1, (4, 2))), jnp.asarray(RNG.uniform(-1, 1, (3, 2)))
    half = RNG.normal(size=(5, 5))
    past = ngp.PseudoData({"a": old, "b": old[:2]}, jnp.asarray(RNG.normal(size=5)), jnp.asarray(half @ half.T))
    value = Coupled(
        jnp.asarray(RNG.normal(size=8)), jnp.asarray(np.tril(0.1 * RNG.normal(size=(8, 8)), -1) + np.eye(8))
    )
    with handlers.trace() as trace, handlers.substitute(data={"f": value}), handlers.seed(rng_seed=0):
        f = ngp.additive_gp("f", kernels, {"a": at, "b": at})
        ngp.recall("yesterday", f, past)
    L = np.zeros((8, 8))
    L[:4, :4], L[4:, 4:] = (part.factor for part in f.basis.parts)
    cross, prior = np.zeros((8, 5)), np.zeros((5, 5))
    cross[:4, :3], cross[4:, 3:] = kernels["a"].matrix(at, old), kernels["b"].matrix(at, old[:2])
    prior[:3, :3], prior[3:, 3:] = kernels["a"].matrix(old), kernels["b"].matrix(old[:2])
    A, S = np.linalg.solve(L, cross), np.asarray(value.scale_tril @ value.scale_tril.T)
    wanted = said(past, A.T @ np.asarray(value.mean), prior - A.T @ (np.eye(8) - S) @ A)
    np.testing.assert_allclose(trace["yesterday"]["fn"].log_factor, wanted, rtol=1e-7)


def model(X, y=None, past=None):
    f = ngp.gp("f", KERNEL, Z, jitter=1e-9)
    if past is not None:
        ngp.recall("yesterday", f, past)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)


def fitted(*data):
    guide = ngp.AutoGP(model, {"f": ngp.guides.conditional()})
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(0.01), 1.0), Trace_ELBO())
    state, _ = svi.update(svi.init(jax.random.key(0), *data), *data)
    return guide, svi.get_params(state)


@pytest.mark.long
def test_parts_that_are_recalled_are_the_whole():
    """Half the data, then the other half and what was learnt: the belief of all at once."""
    first, second = (X[:7], Y[:7]), (X[7:], Y[7:])
    past = ngp.pseudo_data(*fitted(*first))["f"]
    going, added = fitted(*second, past), past + ngp.pseudo_data(*fitted(*second))["f"]
    whole, at = fitted(X, Y), jnp.linspace(-1, 1, 9)[:, None]
    basis = ngp.beliefs.Basis.build(KERNEL, Z, 1e-9)
    wanted = whole[0].beliefs(whole[1])["f"].marginals(basis, at)
    sum_of = ngp.beliefs.Conditional(added.shift, added.precision)
    for found in (going[0].beliefs(going[1])["f"], sum_of):
        for one, other in zip(found.marginals(basis, at), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    alone = fitted(*second)
    assert np.abs(alone[0].beliefs(alone[1])["f"].marginals(basis, at).mean - wanted.mean).max() > 0.1


@pytest.mark.long
def test_samplers_see_it_and_answers_leave_it_out():
    value = {"f": BELIEF.mean}
    with_past, without = (log_density(model, (X, Y), {"past": past}, value)[0] for past in (PAST, None))
    np.testing.assert_allclose(with_past - without, term(BELIEF.mean)[0], rtol=1e-9)
    posterior = ngp.Posterior.from_mcmc(model, {"f": jnp.stack([BELIEF.mean, BELIEF.mean])})
    draws = posterior.draws(jax.random.key(0), X, Y, past=PAST)
    assert set(draws.log_likelihood) == set(draws.observed) == set(draws.replicated) == {"y"}


def test_refusals_name_the_argument_and_the_cure():
    wide, batch = (PAST.shift, PAST.precision), (PAST.shift[None], PAST.precision[None])
    for past, message in (
        (ngp.PseudoData(jnp.ones((3, 2)), *wide), "past.inducing must be an array with 1 columns"),
        (ngp.PseudoData(OLD, *batch), r"past must be about values of shape \(3,\)"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            term(BELIEF, past)
