"""The gp primitive: kernels of one and of several, in plates and as outputs, handlers, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

import numpyro_gp as ngp
from numpyro_gp.primitives.function_draw import function_draw
from tests.primitives.test_process import process


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.zeros((3, 1), bool)), TypeError, "inducing must be floating point"),
        (lambda: ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.full((3, 1), jnp.nan)), ValueError, "inducing must be finite"),
        (lambda: ngp.gp(3, ngp.kernels.RBF(1.0, 1.0), jnp.zeros((3, 1))), TypeError, "name must be the name of a sample site"),
        (lambda: ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.zeros((3, 1)), jitter=-1.0), ValueError, "jitter must be zero or positive"),
        (lambda: process(jnp.zeros(3), ngp.kernels.RBF(1.0, 1.0), jnp.ones((3, 1)))(jnp.zeros((2, 2))), ValueError, "X must be an array with 1 columns"),
        (lambda: process(jnp.zeros(3), ngp.kernels.RBF(1.0, 1.0), jnp.ones((3, 1)))(jnp.zeros((0, 1))), ValueError, "X must be a non-empty array"),
        (lambda: ngp.additive_gp("f", {"a": ngp.kernels.RBF(1.0, 1.0)}, {"a": jnp.ones((3, 1))}).predictor.at_inducing(), TypeError, r"process must be one made by gp\(\), with inducing inputs of its own"),
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
def test_functions_of_own_kernels_are_those_of_single_processes():
    """With the same features and noise; the point is that of each output.

    Weights of harmonics that are rounding, 1e-16, enter by their roots, 1e-8; the other output's kernel is 0.1 away.
    """
    kernels = ngp.kernels.stack([ngp.kernels.Periodic(1.0, 0.7, 2.0), ngp.kernels.Periodic(2.0, 0.5, 3.0)])
    value = jnp.arange(8.0).reshape(2, 4) / 8
    normal = lambda name, shape: jnp.broadcast_to(jnp.linspace(-1.0, 1.0, shape[-1]), shape)  # noqa: E731
    both = function_draw(process(value, kernels, HERE, outputs=2), jax.random.key(0), 40, normal)(ROWS)
    for p in range(2):
        kernel = jax.tree.map(lambda leaf, p=p: leaf[p], kernels)
        single = function_draw(process(value[p], kernel, HERE), jax.random.key(0), 40, normal)(ROWS)
        np.testing.assert_allclose(both[:, p], single, atol=1e-7)


def test_wrong_axes_of_batches_are_named():
    batch = ngp.kernels.stack([ngp.kernels.RBF(1.0, 0.7)] * 2)
    with handlers.seed(rng_seed=0):
        with pytest.raises(
            ValueError,
            match=r"the kernel, the inducing inputs or the noise of site 'f' must be no batch outside of every plate, but "
            r'got leading axes \(2,\)\. Call it inside numpyro\.plate\("group", G\)\. For outputs pass',
        ):
            ngp.gp("f", batch, HERE)
        with pytest.raises(ValueError, match="outputs must be 2, as the batch of kernels has a leading axis of 2"):
            ngp.gp("f", batch, HERE, outputs=3)
        with pytest.raises(ValueError, match=r"inducing must be of shape \(M, D\), shared, or \(2, M, D\)"):
            ngp.gp("f", batch, jnp.stack([HERE] * 3), outputs=2)
    with pytest.raises(
        ValueError, match=r"value at site 'f' must be over whitened values of shape \(2, 4\), .*no plate"
    ):
        process(jnp.ones((5, 2, 4)), batch, HERE, outputs=2)


@jax.jit
def alone(value, factor, number):
    """Mean, joint covariance and divergence of one process."""
    f = process(ngp.beliefs.Coupled(value, factor), ngp.kernels.Matern52(number, 0.3 * number), HERE)
    return f(ROWS).mean, f.joint(ROWS).covariance_matrix, f.process.kl(f.basis)


@pytest.mark.long
@pytest.mark.parametrize("lead", [(2,), (3, 2)], ids=str)
def test_outputs_in_a_plate(lead):
    """Kernels of each output, and of each output of each member."""
    numbers = 1.0 + jnp.arange(float(np.prod(lead, dtype=int))).reshape(lead)
    made = ngp.kernels.Matern52
    for _ in lead:
        made = jax.vmap(made)
    values = jnp.arange(24.0).reshape(3, 2, 4) / 24
    factors = jnp.broadcast_to(0.5 * jnp.eye(4), (3, 2, 4, 4))

    @jax.jit
    def found():
        with numpyro.plate("group", 3):
            f = process(ngp.beliefs.Coupled(values, factors), made(numbers, 0.3 * numbers), HERE, outputs=2)
        assert (f(ROWS).batch_shape, f(ROWS).event_shape) == ((3, 3), (2,))
        return f(ROWS).mean, f.joint(ROWS).covariance_matrix, f.process.kl(f.basis)

    mean, covariance, kl = found()
    assert kl.shape == (3,)
    every = np.broadcast_to(numbers, (3, 2))
    for g in range(3):
        single = [alone(values[g, p], factors[0, 0], every[g, p]) for p in range(2)]
        np.testing.assert_allclose(kl[g], sum(divergence for *_, divergence in single), rtol=1e-10)
        for p, (own_mean, own_covariance, _) in enumerate(single):
            np.testing.assert_allclose(mean[g, :, p], own_mean, rtol=1e-10)
            np.testing.assert_allclose(covariance[g, p], own_covariance, rtol=1e-8)


@pytest.mark.long
def test_draws_in_a_plate_are_draws_of_the_members():
    """Two sets of rows for each member share a function; members have their own."""
    X, noise = jnp.stack([ROWS, ROWS + 0.3])[:, None] + jnp.array([0.0, 0.1])[None, :, None, None], jnp.ones((2, 2, 3))
    values = jnp.arange(8.0).reshape(2, 4) / 8
    kernels = ngp.kernels.stack([ngp.kernels.RBF(1.0, 0.7), ngp.kernels.RBF(2.0, 0.2)])

    def drawn(value, kernel, X, noise):
        f = process(value, kernel, HERE)
        with handlers.substitute(data={"e": noise}):
            return f.draw("e", X)

    with numpyro.plate("group", 2, dim=-2):
        both = drawn(values[:, None], kernels, X, noise)
    for g in range(2):
        one = drawn(values[g], jax.tree.map(lambda leaf, g=g: leaf[g], kernels), X[:, g], noise[:, g])
        np.testing.assert_allclose(both[:, g], one, rtol=1e-8)


def test_at_inducing_in_a_plate():
    """Shared inputs and inputs of each member: read off the factors, the same numbers as the process called there."""
    values, kernels = (
        jnp.arange(8.0).reshape(2, 4) / 8,
        ngp.kernels.stack([ngp.kernels.RBF(1.0, 0.7), ngp.kernels.RBF(2.0, 0.2)]),
    )
    for Z in (HERE, jnp.stack([HERE, HERE + 0.3])):
        with numpyro.plate("group", 2):
            f = process(values, kernels, Z, mean=jnp.array([1.0, -1.0]), jitter=1e-3)
        np.testing.assert_allclose(f.at_inducing().mean, f(Z + 0.0).mean, atol=1e-10)
        np.testing.assert_allclose(f.at_inducing().variance, f(Z + 0.0).variance, atol=1e-10)


def test_wrong_axes_in_a_plate_are_named():
    batch = ngp.kernels.stack([ngp.kernels.RBF(1.0, 0.7)] * 2)
    with handlers.seed(rng_seed=0), numpyro.plate("group", 3):
        with pytest.raises(
            ValueError, match=r"kernel.* of site 'f' must be a batch of the plates around it, \(3,\), but got"
        ):
            ngp.gp("f", batch, HERE)
        with pytest.raises(
            ValueError, match="mean must be one level for each member of plate 'group' of 3, but got shape"
        ):
            ngp.gp("f", ngp.kernels.RBF(1.0, 0.7), HERE, mean=jnp.zeros(2))
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.7), HERE)
        with pytest.raises(
            ValueError, match=r"X must be of shape \(N, D\), rows that all members share, or \(3, N, D\)"
        ):
            f(jnp.stack([ROWS, ROWS]))
