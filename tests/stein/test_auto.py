"""Particles without a choice: where they arrive, when they stop, and models that they are not for."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import numpyro_gp as ngp

KEY = jax.random.key(1)
X = jnp.linspace(-1.0, 1.0, 8)[:, None]


def conjugate(y):
    """The posterior of a is N(mean(y) 8/9, 1/9), and the rate has its prior, Gamma(4, 1)."""
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    numpyro.sample("rate", dist.Gamma(4.0, 1.0))
    with numpyro.plate("data", 8):
        numpyro.sample("y", dist.Normal(a, 1.0), obs=y)


@pytest.mark.long
def test_particles_arrive_and_stop_by_themselves():
    y = jnp.linspace(2.0, 4.0, 8)
    svgd, found = ngp.stein.auto(KEY, conjugate, y, num_particles=15)
    particles = svgd.particles(found.params)
    sd = np.sqrt(1 / 9)
    assert abs(float(particles["a"].mean()) - 8 / 3) < 0.2 * sd
    assert 0.75 < float(particles["a"].std()) / sd < 1.1
    assert abs(float(particles["rate"].mean()) - 4.0) < 0.4
    assert 200 <= len(found.losses) < 2000
    assert svgd.judgement.warning() == ""


@pytest.mark.long
def test_the_kernel_is_that_of_the_structure_and_a_run_that_still_moves_says_so():
    def model(y):
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 0.5))
        f = ngp.gp("f", ngp.kernels.RBF(1.0, lengthscale), X[::2])
        with numpyro.plate("data", 8):
            ngp.observe("y", f(X), ngp.likelihoods.Poisson(), obs=y)

    with pytest.warns(
        UserWarning, match="Whether particles still move was not seen after 1 steps: pass most_steps=200"
    ):
        svgd, found = ngp.stein.auto(KEY, model, jnp.arange(8.0), num_particles=3, most_steps=1)
    blocks = svgd.kernel_fn.blocks(("f_conditioned", "lengthscale"))
    assert [(block.sites, block.kernel.per_coordinate) for block in blocks] == [
        (("lengthscale",), False),
        (("f_conditioned",), True),
    ]
    assert found.losses.shape == (1,)
    posterior = ngp.Posterior.from_stein(model, svgd, found.params)
    assert posterior.functions(KEY, 3, jnp.arange(8.0), num_features=16)(X).shape == (3, 8)
    assert svgd.particles(found.params)["f_conditioned"].shape == (3, 4)


@pytest.mark.long
def test_particles_start_in_the_better_of_two_modes():
    """From medians the guide calls this series noise, and its draws are where particles start."""
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(-1.7, 1.7, 25))
    y = np.sin(2 * np.pi * t / 0.35 + 0.6 * np.sin(3 * t)) + 0.1 * rng.normal(size=25)
    rows, y = jnp.asarray(t[:, None] / t.std()), jnp.asarray((y - y.mean()) / y.std())

    def model(X, y=None):
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
        noise = numpyro.sample("noise", ngp.starting.noise_prior())
        ngp.gp_regression("y", ngp.kernels.RBF(1.0, lengthscale), X, noise_variance=noise**2, obs=y)

    with pytest.warns(UserWarning, match="still move"):
        svgd, found = ngp.stein.auto(KEY, model, rows, y, num_particles=20, most_steps=1)
    assert float(jnp.median(svgd.particles(found.params)["noise"])) < 0.2  # 0.9 without a search


def test_models_that_draw_functions_are_refused():
    def deep(y):
        g, f = (ngp.gp(name, ngp.kernels.RBF(1.0, 1.0), X[::2]) for name in "gf")
        with numpyro.plate("data", 8):
            ngp.observe("y", f(g.draw("e", X)[..., None]), ngp.likelihoods.Gaussian(0.3), obs=y)

    with pytest.raises(ValueError, match=r"the model must be without draws of inner functions, but got those of.*'e'"):
        ngp.stein.auto(KEY, deep, X[:, 0])


def test_processes_without_inducing_inputs_are_refused():
    def model(line, y):
        f = ngp.gp("f", ngp.kernels.Matern32(1.0, 1.0), inducing=line)
        ngp.observe("y", f.at_inducing(), ngp.likelihoods.Poisson(), obs=y)

    with pytest.raises(
        ValueError, match=r"with inducing inputs, but got.*a line at \['f'\]. Take ngp.NUTS, or stein.SVGD"
    ):
        ngp.stein.auto(KEY, model, ngp.line(X[:, 0]), jnp.arange(8.0))
