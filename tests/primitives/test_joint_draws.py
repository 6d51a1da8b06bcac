"""Draws of one function at the several inputs of a datum: their distribution through whitened values, and where."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI, TraceMeanField_ELBO

import numpyro_gp as ngp
from numpyro_gp.arrays import set_to
from numpyro_gp.primitives.function_draw import NOISE_IS_FREE, drawn_through

SETS, ROWS, POINTS = 3, 2, 4
KERNEL, Z = ngp.kernels.RBF(1.3, 0.7), jnp.linspace(-1.0, 1.0, POINTS)[:, None]


def layer(belief, X, noise, outputs=None, is_free=True):
    """Values drawn at ``X`` ``(R, N, D)``, of given noise, what the process says of them jointly, and all sites."""
    with handlers.trace() as trace, handlers.seed(rng_seed=0), handlers.substitute(data={"f": belief, **noise}):
        f = ngp.gp("f", KERNEL, inducing=Z, outputs=outputs, mean=lambda X: X[..., 0])
        with numpyro.plate("data", ROWS), set_to(NOISE_IS_FREE, is_free):
            return f.draw("draw", X), f.joint(jnp.swapaxes(X, 0, 1)), trace


def some_belief(rng, outputs):
    own = () if outputs is None else (outputs,)
    factor = np.tril(rng.normal(size=(*own, POINTS, POINTS)), -1) + np.eye(POINTS) * rng.uniform(0.3, 0.9, POINTS)
    return ngp.beliefs.Coupled(jnp.asarray(rng.normal(size=(*own, POINTS))), jnp.asarray(factor)), own


@pytest.mark.long
@pytest.mark.parametrize("outputs", [None, 2])
def test_draws_have_the_joint_distribution_of_the_process(rng, outputs):
    """They are linear in the noise: ``J J^T`` is the covariance over the inputs of a datum, and zero between data.

    A layer draws so, with its mean and its jitter.
    """
    belief, own = some_belief(rng, outputs)
    X, basis = jnp.asarray(rng.normal(size=(SETS, ROWS, 1))), ngp.beliefs.Basis.build(KERNEL, Z)
    drawn = lambda values, white: drawn_through(belief, basis, X, values, white, 1e-6)  # noqa: E731
    noise = jnp.zeros((ROWS, *own, POINTS)), jnp.zeros((SETS, ROWS, *own))
    found, joint, trace = layer(belief, X, {}, outputs)
    shift = jnp.expand_dims(X[..., 0], tuple(range(2, 2 + len(own))))
    sites = trace["draw/values"]["value"], trace["draw"]["value"]
    np.testing.assert_allclose(found, drawn(*sites) + shift, rtol=1e-10)
    wanted = np.asarray(joint.loc).reshape(ROWS, *own, SETS)
    np.testing.assert_allclose(np.moveaxis(drawn(*noise) + shift, 0, -1), wanted, rtol=1e-10, atol=1e-12)
    flat = [np.asarray(one).reshape(SETS * ROWS * int(np.prod(own)), -1) for one in jax.jacobian(drawn, (0, 1))(*noise)]
    covariance = sum(one @ one.T for one in flat).reshape(2 * (SETS, ROWS, *own))
    wanted = np.zeros_like(covariance)
    for row in range(ROWS):
        if outputs is None:
            wanted[:, row, :, row] = joint.covariance_matrix[row]
        for place in range(outputs or 0):
            wanted[:, row, place, :, row, place] = joint.covariance_matrix[row, place]
    np.testing.assert_allclose(covariance, wanted, rtol=1e-10, atol=1e-12)
    assert np.min(np.linalg.eigvalsh(joint.covariance_matrix)) > 1e-4, "nothing is seen of a singular one"


def deep(X, y=None):
    lower = ngp.gp("f_0", ngp.kernels.RBF(1.0, 1.0), inducing=jnp.concatenate([Z, -Z], axis=1), outputs=2)
    upper = ngp.gp("f_1", ngp.kernels.RBF(1.0, 1.0), inducing=jnp.concatenate([Z, Z], axis=1))
    with numpyro.plate("data", len(X)):
        hidden = lower.draw("draw", ngp.latent_inputs("w", X))
        ngp.observe("y", upper(hidden), ngp.likelihoods.Gaussian(0.3), obs=y)


@pytest.mark.long
def test_only_importance_weights_open_noise_that_guides_do_not_know():
    X = jnp.linspace(-1.0, 1.0, 5)[:, None]
    guide, sites = ngp.AutoGP(deep), []

    def watched(*args):
        with handlers.trace() as trace:
            deep(*args)
        sites.append({name: site["fn"].batch_shape for name, site in trace.items() if name.startswith("draw")})

    weighted, usual = {"draw": (3, 5), "draw/values": (5,)}, {"draw": (5,)}
    for objective, expected in ((ngp.ImportanceWeightedELBO(3), weighted), (TraceMeanField_ELBO(), usual)):
        svi = SVI(watched, guide, optax.adam(0.01), objective)
        state = svi.init(jax.random.key(0), X, X[:, 0])
        sites.clear()
        assert np.isfinite(svi.evaluate(state, X, X[:, 0]))
        assert sites == [expected]


def test_noise_that_is_given_is_that_of_the_joint_covariance(rng):
    """A user's own draws, one for each input, mean what they meant: the factor of the covariance times them."""
    belief, _ = some_belief(rng, None)
    X, noise = jnp.asarray(rng.normal(size=(SETS, ROWS, 1))), jnp.asarray(rng.normal(size=(SETS, ROWS)))
    found, joint, trace = layer(belief, X, {"draw": noise})
    assert "draw/values" not in trace
    assert "draw/values" not in layer(belief, X, {}, is_free=False)[2]  # for engines whose guide does not know it
    factors = np.linalg.cholesky(joint.covariance_matrix)
    wanted = np.asarray(joint.loc) + np.einsum("nrs,sn->nr", factors, noise)
    np.testing.assert_allclose(found, wanted.T, rtol=1e-6, atol=1e-8)
