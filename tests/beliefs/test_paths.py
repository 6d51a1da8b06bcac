"""Functions of every belief have its mean and covariance: exactly, with finite features and over linear noise."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp import beliefs as b
from numpyro_gp.beliefs.paths import corrections, prior_draw, root
from numpyro_gp.kernels import RBF, Linear, Periodic
from tests.contracts.compositions import Delegating as Delegate

Z = jnp.array([[0.05], [0.3], [0.8]])
OWN = jnp.array([[0.0], [0.2], [0.55], [0.9]])
X = jnp.array([[0.1], [0.3], [0.65], [1.3]])
KERNEL = Periodic(1.3, 0.7, 1.7) + Linear(0.4)
rng = np.random.default_rng(0)


@functools.cache
def single():
    """Not where the file is read: each process of a run reads all files, and these are a second of small programs."""
    return b.Basis.build(KERNEL, Z, 1e-3)


@functools.cache
def additive():
    kernels = {"a": Periodic(1.3, 0.7, 1.7), "b": Linear(0.4)}
    return b.AdditiveBasis.build(kernels, {"a": Z, "b": Z[:2]}, 1e-3)


def lower(size, *batch):
    return jnp.asarray(np.tril(0.3 * rng.normal(size=(*batch, size, size))) + 0.6 * np.eye(size))


def vector(*shape):
    return jnp.asarray(rng.normal(size=shape))


COUPLED = b.Coupled(vector(3), lower(3))
BELIEFS = {
    "points": b.Point(vector(2, 3)),
    "coupled": COUPLED,
    "coupled of two": b.Coupled(vector(2, 3), lower(3, 2)),
    "mean field": b.MeanField(vector(2, 3), jnp.exp(vector(2, 3))),
    "a user's own": Delegate(COUPLED),
    "orthogonal": b.Orthogonal(OWN, vector(2, 4), vector(2, 3), lower(3, 2)),
    "hybrid": b.Hybrid(OWN, vector(4), vector(3), lower(3)),
    "decoupled of two": b.Decoupled(OWN, vector(2, 4), lower(3, 2)),
    "layer": b.DecoupledLayer(OWN, vector(2, 4), mean="gp", scale_tril=lower(3, 2)),
    "layer, cb": b.DecoupledLayer(OWN, vector(4), mean="cb", B_tril=lower(3)),
    "additive, coupled": b.Coupled(vector(5), lower(5)),
    "block diagonal": b.BlockDiagonal(vector(5), (lower(3), lower(2))),
    "structured": b.Structured(vector(5), vector(5, 2)),
    "low rank": b.BlockLowRank(vector(5), (lower(3), lower(2)), vector(5, 2)),
}


def linear_map(process, basis):
    """Values at X without noise, and their derivatives in all noise."""
    parts = basis.parts if isinstance(basis, b.AdditiveBasis) else (basis,)
    batch = getattr(process, "v", getattr(process, "whitened_mean", None)).shape[:-1]

    def value(noise, shapes):
        def normal(name, shape):
            assert name not in shapes or noise is not None
            shapes[name] = shape
            return jnp.zeros(shape) if noise is None else noise[name]

        priors = tuple(
            prior_draw(part.kernel, part.inducing, jax.random.key(0), 30, normal, batch, f"w{c}")
            for c, part in enumerate(parts)
        )
        found = corrections(process, basis, priors, normal)
        return sum(part(X) for part in (*priors, *found))

    shapes = {}
    jax.eval_shape(lambda: value(None, shapes))
    zeros = {name: jnp.zeros(shape) for name, shape in shapes.items()}
    return jax.jit(lambda: (value(zeros, {}), jax.jacrev(lambda noise: value(noise, {}))(zeros)))()


LATER = ("coupled", "mean field", "hybrid", "block diagonal")  # whose parts others have


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long) if n in LATER else n for n in BELIEFS])
def test_functions_have_the_mean_and_covariance_of_the_belief(name):
    """A forgotten jitter, a sign or a transposed factor moves an entry by more than 1e-3."""
    process = BELIEFS[name]
    size = getattr(process, "v", getattr(process, "whitened_mean", None)).shape[-1]
    basis = additive() if size == 5 else single()
    mean, slopes = linear_map(process, basis)
    joint = process.joint(basis, X)
    np.testing.assert_allclose(mean, joint.mean, atol=1e-10)
    flat = jnp.concatenate([leaf.reshape(*mean.shape, -1) for leaf in jax.tree.leaves(slopes)], axis=-1)
    covariance = jnp.einsum("...i,...i->...", flat[..., :, None, :], flat[..., None, :, :])
    np.testing.assert_allclose(covariance, joint.covariance, atol=1e-10)


def test_parts_of_functions():
    """A root with a derivative at zero, a kernel without features, and what has no functions."""
    np.testing.assert_allclose(jax.vmap(jax.grad(root))(jnp.array([0.0, 4.0])), [0.0, 0.25])
    assert prior_draw(lambda a, b: a @ b.T, Z, jax.random.key(0), 4, None, (), "w") is None
    drawn = prior_draw(RBF(1.0, 1.0), Z, jax.random.key(0), 4, lambda _, shape: jnp.zeros(shape), (2,), "w")
    assert drawn.weights.shape == (2, 8)
    with pytest.raises(TypeError, match="process must be one whose functions are known, but got an int"):
        corrections(3, single(), (), None)
