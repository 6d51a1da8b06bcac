"""The basis, the point process, and how a belief looks to NumPyro."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import Basis, Coupled, Decoupled, DecoupledLayer, Hybrid, MeanField, Orthogonal, Point
from numpyro_gp.beliefs.base import OutputsBasis, check_belief, output_axes, positive
from numpyro_gp.kernels import RBF, Matern32, stack
from tests.oracles.build import Delegate, basis_of
from tests.oracles.vectors import cases


@pytest.mark.parametrize("case", cases("sparse_mcmc"))
def test_point_is_the_conditional_given_whitened_values(case):
    """Tolerance 1e-9: a factor L transposed, or a missing whitening, is off by 0.1 and more."""
    basis, X = basis_of(case), jnp.asarray(case["Xs"])
    point = Point(jnp.asarray(case["v"]))
    mean, variance = point.marginals(basis, X)
    np.testing.assert_allclose(mean, case["mean"], atol=1e-9)
    np.testing.assert_allclose(variance, np.diag(case["cov"]), atol=1e-9)
    np.testing.assert_allclose(point.joint(basis, X).covariance, case["cov"], atol=1e-9)


@pytest.mark.parametrize("jitter", [0.0, 1e-2])
def test_features_at_the_inducing_inputs_are_read_off_the_factor_where_that_is_asked_for(rng, jitter):
    """With a jitter of 1e-2, L^T alone would be off by 1e-3 and more."""
    Z = jnp.asarray(rng.normal(size=(6, 2)))
    basis = Basis.build(Matern32(1.3, 0.7), Z, jitter)
    asked = dataclasses.replace(basis, kernel=None, at_inducing=True)  # a basis with no kernel left to call
    np.testing.assert_allclose(asked.features(asked.inducing), basis.features(Z), atol=1e-12)


def test_jitter_is_relative():
    basis = Basis.build(RBF(4.0, 1.0), jnp.zeros((1, 1)), 1e-2)
    np.testing.assert_allclose(basis.jitter, 0.04)
    np.testing.assert_allclose(basis.factor, np.sqrt([[4.04]]))


def test_values_with_output_axes(rng):
    basis = Basis.build(RBF(1.0, 1.0), jnp.asarray(rng.normal(size=(4, 1))), 0.0)
    X, v = jnp.asarray(rng.normal(size=(3, 1))), jnp.asarray(rng.normal(size=(2, 4)))
    both = Point(v).marginals(basis, X)
    for output in range(2):
        one = Point(v[output]).marginals(basis, X)
        np.testing.assert_allclose(both.mean[output], one.mean)
        np.testing.assert_allclose(both.variance[output], one.variance)
    assert Point(v).joint(basis, X).covariance.shape == (2, 3, 3)


def test_positive_keeps_nan_and_lifts_rounding():
    lifted = positive(jnp.array([-1e-18, jnp.nan, 0.5]), jnp.ones(3))
    assert lifted[0] > 0
    assert jnp.isnan(lifted[1])
    assert lifted[2] == 0.5


def test_a_belief_looks_like_the_array_of_its_whitened_mean():
    belief = Coupled(jnp.arange(3.0), jnp.eye(3))
    assert (belief.shape, belief.ndim, belief.size, belief.dtype) == ((3,), 1, 3, jnp.float64)
    assert jnp.shape(belief) == (3,)
    np.testing.assert_array_equal(belief.__jax_array__(), np.arange(3.0))
    assert jax.tree.map(jnp.shape, belief).scale_tril == (3, 3)


def test_a_belief_of_another_size_is_refused():
    with pytest.raises(
        ValueError, match=r"belief at site 'f' must be over whitened values of shape \(4,\).*Coupled over shape \(3,\)"
    ):
        check_belief("f", Coupled(jnp.zeros(3), jnp.eye(3)), (4,))


OWN = jnp.array([[0.1], [0.5], [0.9], [1.3]])
Z3 = jnp.array([[0.0], [0.4], [1.1]])
X2 = jnp.array([[0.2], [0.7]])


def two(*shape):
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=(2, *shape)))


FACTORS = jnp.tril(0.2 * two(3, 3)) + 0.7 * jnp.eye(3)[None]
OF_TWO = {
    "point": Point(two(3)),
    "coupled": Coupled(two(3), FACTORS),
    "mean field": MeanField(two(3), jnp.exp(two(3))),
    "orthogonal": Orthogonal(OWN, two(4), two(3), FACTORS, columns=jnp.array([0, 2])),
    "hybrid": Hybrid(OWN, two(4), two(3), FACTORS),
    "decoupled": Decoupled(OWN, two(4), FACTORS),
    "layer": DecoupledLayer(OWN, two(4), mean="gp", scale_tril=FACTORS),
    "a user's own": Delegate(Coupled(two(3), FACTORS)),
}


def summary(belief, basis):
    """A number that depends on all that a belief says, each output with another weight."""
    (mean, variance), joint = belief.marginals(basis, X2), belief.joint(basis, X2)
    weight = jnp.arange(1.0, 5.0).reshape(2, 2) if mean.ndim == 2 else None
    kl = 0.0 if isinstance(belief, Point) else belief.kl(basis)
    return weight, mean, variance + joint.covariance[..., 0, :], kl


@pytest.mark.long
@pytest.mark.parametrize("inducing", [Z3, jnp.stack([Z3, Z3 + 0.3])], ids=["shared", "own"])
@pytest.mark.parametrize("name", OF_TWO)
def test_a_batch_is_a_loop_over_its_members(name, inducing):
    """Values, and derivatives in the kernels; a mean basis ``Z_...`` is shared. Permuted members permute them."""
    belief = OF_TWO[name]
    batch = stack([Matern32(1.3, 0.7), Matern32(0.6, 0.2)])
    members = [jax.tree.map(lambda leaf, p=p: leaf[p], batch) for p in range(2)]
    points = [inducing if inducing.ndim == 2 else inducing[p] for p in range(2)]
    axes = output_axes(belief)
    parts = [jax.tree.map(lambda leaf, axis, p=p: leaf if axis is None else leaf[p], belief, axes) for p in range(2)]

    def whole(kernel):
        weight, mean, variance, kl = summary(belief, OutputsBasis.build(kernel, inducing, 1e-4, True))
        return jnp.sum(weight * mean + weight * variance) + kl

    def loop(kernels):
        found = [summary(part, Basis.build(k, z, 1e-4)) for part, k, z in zip(parts, kernels, points, strict=True)]
        weight = jnp.arange(1.0, 5.0).reshape(2, 2)
        return sum(jnp.sum(weight[p] * (one[1] + one[2])) + one[3] for p, one in enumerate(found))

    value, slopes = jax.jit(jax.value_and_grad(whole))(batch)
    wanted, each = jax.jit(jax.value_and_grad(loop))(members)
    np.testing.assert_allclose(value, wanted, rtol=1e-10)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-7), slopes, stack(each))


@pytest.mark.long
def test_prior_quantities_of_a_batch():
    batch = stack([Matern32(1.3, 0.7), Matern32(0.6, 0.2)])
    basis = OutputsBasis.build(batch, Z3, 0.0, True)
    assert (basis.size, basis.dtype) == (3, jnp.float64)
    for p, kernel in enumerate([Matern32(1.3, 0.7), Matern32(0.6, 0.2)]):
        single = Basis.build(kernel, Z3, 0.0)
        np.testing.assert_allclose(basis.features(X2)[p], single.features(X2), rtol=1e-10)
        np.testing.assert_allclose(basis.matrix(X2)[p], single.matrix(X2), rtol=1e-10)
        np.testing.assert_allclose(basis.diagonal(X2)[p], single.diagonal(X2), rtol=1e-10)
    assert OF_TWO["a user's own"].is_whitened(basis)
    assert not OF_TWO["hybrid"].is_whitened(basis)
    np.testing.assert_allclose(OF_TWO["a user's own"].whitened(basis).scale_tril, FACTORS, atol=1e-6)
