"""Stein discrepancy against automatic derivatives of its definition; paths against the run they record; figures."""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest

from numpyro_gp.stein import IMQ, RBF, SVGD, Moments, Paths, PerSite, ksd, particle_paths, plot_paths, plot_spread

KEY = jax.random.key(1)


def by_definition(x, s, k):
    """Mean of s.s' k + s.grad_y k + s'.grad_x k + tr grad_x grad_y k, by automatic differentiation."""

    def pair(a, b, s, t):
        cross = jnp.trace(jax.jacfwd(jax.grad(k, 0), 1)(a, b))
        return s @ t * k(a, b) + s @ jax.grad(k, 1)(a, b) + t @ jax.grad(k, 0)(a, b) + cross

    every = jax.vmap(jax.vmap(pair, (None, 0, None, 0)), (0, None, 0, None))
    return jnp.sqrt(jnp.mean(jax.jit(every)(x, x, s, s)))


@pytest.mark.long
@pytest.mark.parametrize(
    ("kernel", "k"),
    [
        (RBF(0.7), lambda a, b: jnp.exp(-jnp.sum((a - b) ** 2) / 0.7)),
        (IMQ(1.2, -0.4, 1.5), lambda a, b: (1.44 + jnp.sum((a - b) ** 2) / 1.5) ** -0.4),
    ],
    ids=["rbf", "imq"],
)
def test_discrepancy_by_definition(kernel, k, rng):
    x, s = jnp.asarray(rng.normal(size=(2, 4, 3)))
    np.testing.assert_allclose(ksd(x, s, kernel), by_definition(x, s, k), rtol=1e-8)
    np.testing.assert_allclose(ksd(x + 1e4, s, kernel), ksd(x, s, kernel), rtol=1e-8)


@pytest.mark.long
def test_discrepancies_of_blocks_and_of_coordinates_add_their_squares(rng):
    x = {"a": jnp.asarray(rng.normal(size=5)), "b": jnp.asarray(rng.normal(size=(5, 2)))}
    s = {"a": -x["a"], "b": -x["b"]}
    parts = [ksd(x["a"][:, None], s["a"][:, None], RBF()), ksd(x["b"], s["b"], RBF())]
    np.testing.assert_allclose(ksd(x, s, PerSite()), np.hypot(*parts), rtol=1e-10)
    x, s = jnp.asarray(rng.normal(size=(2, 5, 3)))
    parts = [ksd(x[:, [d]], s[:, [d]], RBF(0.7)) for d in range(3)]
    np.testing.assert_allclose(ksd(x, s, RBF(0.7, per_coordinate=True)), np.linalg.norm(parts), rtol=1e-10)


def model():
    numpyro.sample("rate", dist.Weibull(4.0, 2.0))


@pytest.mark.long
def test_paths_are_those_of_the_run():
    def engine():
        return SVGD(model, optax.adam(0.1), num_stein_particles=3)

    paths = particle_paths(KEY, engine(), 6, every=2)
    run = engine().run(KEY, 6, progress_bar=False)
    np.testing.assert_array_equal(paths.steps, [0, 2, 4, 6])
    assert paths.particles["rate"].shape == (4, 3)
    np.testing.assert_allclose(paths.particles["rate"][-1], run.params["rate_auto_loc"], rtol=1e-12)
    np.testing.assert_allclose(paths.forces, run.losses, rtol=1e-12)
    svgd = engine()
    start = svgd.particles(svgd.init(KEY))["rate"]
    np.testing.assert_allclose(paths.particles["rate"][0], start, rtol=1e-12)
    onward = particle_paths(KEY, svgd, 2, init_state=particle_paths(KEY, svgd, 4).state)
    np.testing.assert_allclose(onward.particles["rate"][-1], paths.particles["rate"][-1], rtol=1e-10)


@pytest.mark.long
def test_paths_of_a_model_on_minibatches_with_switches():
    """The size of a batch and a switch are no arrays; a new engine goes on from the state of another."""

    def sized(y, batch=None, wide=False):
        mean = numpyro.sample("mean", dist.Normal(0.0, 10.0 if wide else 1.0))
        with numpyro.plate("data", y.shape[0], subsample_size=batch) as index:
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y[index])

    def engine():
        return SVGD(sized, optax.adam(0.1), num_stein_particles=3)

    y = jnp.arange(6.0)
    first = particle_paths(KEY, engine(), 2, y, batch=2, wide=True)
    paths = particle_paths(KEY, engine(), 2, y, batch=2, wide=True, init_state=first.state)
    run = engine().run(KEY, 4, y, batch=2, wide=True, progress_bar=False)
    np.testing.assert_allclose(paths.particles["mean"][-1], run.params["mean_auto_loc"], rtol=1e-10)


def test_discrepancies_are_of_distances_alone():
    with pytest.raises(ValueError, match=r"kernel must be one of distances alone, but got Moments"):
        ksd(jnp.ones((2, 1)), jnp.ones((2, 1)), Moments())


def test_paths_have_a_line_for_each_particle(rng):
    values = rng.normal(size=(4, 3))
    ax = plot_paths(Paths(np.arange(4), {"a": values}, np.zeros(3), None), "a")
    np.testing.assert_array_equal(np.stack([line.get_ydata() for line in ax.lines], 1), values)
    assert "3 particles" in ax.get_title(loc="left")
    plt.close(ax.figure)


def test_spread_shows_particles_and_references(rng):
    particles, draws = {"a": rng.normal(size=5)}, {"a": rng.normal(size=100)}
    ax = plot_spread(particles, "a", {"NUTS": draws})
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), particles["a"])
    np.testing.assert_allclose(ax.lines[1].get_xdata(), np.quantile(draws["a"], [0.05, 0.95]))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["5 particles", "NUTS"]
    plt.close(ax.figure)
    with pytest.raises(ValueError, match=r"site must be a scalar site, but got values of shape \(3, 2\)"):
        plot_spread({"a": np.zeros((3, 2))}, "a")
