"""What the target says of particles at the end: numbers, stranded ones, engines of NumPyro, components of beliefs."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.contrib import einstein
from numpyro.infer import init_to_sample

import numpyro_gp as ngp
from numpyro_gp.criticism import fit_checks
from numpyro_gp.criticism.fit_checks import Case
from numpyro_gp.stein import RBF, SVGD
from numpyro_gp.stein.target import Judgement
from tests.stein.models import KEY, X


def normal(offset=0.0):
    numpyro.sample("a", dist.Normal(0.0, 1.0))
    numpyro.sample("rate", dist.Gamma(4.0, 1.0))
    numpyro.factor("offset", jnp.asarray(offset))


def wide():
    numpyro.sample("a", dist.Normal(0.0, 2.0).expand([60]).to_event(1))


def walled(limit):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    numpyro.factor("wall", jnp.log(limit - a))


def started(model, a, optim=None):
    return SVGD(model, optim or optax.sgd(1e-4), RBF(), len(a), init_particles={"a": jnp.asarray(a)})


def test_draws_are_not_stranded_and_what_lies_far_below_them_is(rng):
    """Minus the log density of draws of a normal in d coordinates is half a chi-square: no alarm in 4000 of them."""
    for size in (1, 3, 60):
        density = -0.5 * (rng.normal(size=(4000, size)) ** 2).sum(1)
        assert Judgement({}, density, size, 0.0).warning() == ""
        gap = 5 * np.sqrt(size / 2) + 6
        density[[3, 5]] = np.median(density) - gap
        assert (
            "2 of 4000 particles are stranded: the log density at particles [3, 5]"
            in Judgement({}, density, size, 0.0).warning()
        )


@pytest.mark.long
def test_stranded_particles_are_noticed_by_fit_and_by_from_stein():
    svgd = started(normal, [0.1, -0.3, 0.2, 9.0])
    with pytest.warns(
        UserWarning, match=r"1 of 4 particles are stranded: the log density at particles \[3\] is up to 39 nats"
    ):
        found = ngp.fit(KEY, svgd, 100, progress=False)
    with pytest.warns(UserWarning, match="1 of 4 particles are stranded.*Start near the posterior: ngp.stein.auto"):
        posterior = ngp.Posterior.from_stein(normal, svgd, found.params)
    assert posterior.extra_fields["stranded"].tolist() == [False, False, False, True]  # for the verdict
    weighed = ngp.Posterior.from_stein(normal, svgd, found.params, weights=[0.5, 0.25, 0.25, 0.0])
    equal = weighed.samples["a"]
    assert not weighed.extra_fields
    near = found.params["a_auto_loc"]
    np.testing.assert_allclose(equal, np.repeat(near, [20, 10, 10, 0]), rtol=1e-12)
    near_too = {name: value.at[3].set(value[0]) for name, value in found.params.items()}
    ngp.Posterior.from_stein(normal, svgd, near_too)  # other particles than those that were judged
    with pytest.warns(UserWarning, match="stranded"):
        ngp.Posterior.from_stein(normal, svgd, found.state, 0.0)
    for weights in (jnp.ones(4), jnp.ones(3) / 3, jnp.array([1.5, -0.5, 0.0, 0.0])):
        with pytest.raises(ValueError, match="weights must be 4 numbers from 0 on that add up to 1"):
            ngp.Posterior.from_stein(normal, svgd, found.params, weights=weights)


def test_particles_know_how_wide_they_lie(rng):
    """By the log density at their mean: draws of a normal by any factor, and two modes, of which it knows nothing."""
    widths = np.array([[0.2, 1.0, 30.0]])
    for factor in (0.1, 0.5, 1.0):
        draws = factor * rng.normal(size=(500, 3)) * widths + 7.0
        density = lambda x: -0.5 * np.sum(((x - 7.0) / widths) ** 2, axis=-1)  # noqa: E731
        judged = Judgement({}, density(draws), 3, float(density(draws.mean(0))[0]))
        assert judged.spread == pytest.approx(factor, rel=0.1)
        assert ("narrow" in judged.warning()) == (factor < 0.3)
    modes = Judgement({}, np.zeros(6), 2, -50.0)
    assert np.isnan(modes.spread)
    assert modes.warning() == ""
    assert np.isnan(Judgement({}, np.zeros(1), 2, 0.0).spread)  # one particle is a mode, as it was asked to be


def test_coordinates_that_a_mask_hides_do_not_make_particles_narrow(rng):
    """Draws of a normal in 8 coordinates beside 392 without a density, which were 0.14 of its spread."""

    def model():
        with numpyro.plate("rows", 400), numpyro.handlers.mask(mask=jnp.arange(400) < 8):
            numpyro.sample("a", dist.Normal(0.0, 1.0))

    draws = rng.normal(size=(40, 400)).astype(np.float32)
    svgd = started(model, draws)
    svgd.init(KEY)
    judged = svgd.judge({"a_auto_loc": jnp.asarray(draws)})
    assert judged.coordinates == 8
    assert judged.spread == pytest.approx(np.sqrt(np.var(draws[:, :8], axis=0).mean()), rel=1e-4)


@pytest.mark.long
def test_narrow_particles_are_told_of_by_fit_by_from_stein_and_by_a_verdict():
    """Few particles under one distance in many dimensions: 0.1 of the spread, with no word."""
    svgd = SVGD(wide, optax.adam(0.05), RBF(), 5)
    with pytest.warns(UserWarning, match=r"The 5 particles are narrow: they lie within \d+ % of the posterior's"):
        found = ngp.fit(KEY, svgd, 600, progress=False)
    with pytest.warns(UserWarning, match=r"are narrow.*take ngp.stein.auto"):
        posterior = ngp.Posterior.from_stein(wide, svgd, found.params)
    spread = np.sqrt(np.var(posterior.samples["a"], axis=0).mean() / 4.0)
    assert posterior.extra_fields["spread"] == pytest.approx(spread, rel=0.02)
    assert spread < 0.3
    assert "narrow particles" in {found.fault for found in fit_checks.narrow(Case(None, posterior))}


@pytest.mark.long
def test_a_density_that_is_no_number_is_refused_where_positions_are_finite():
    svgd = started(walled, [0.0, 0.5, 9.0])
    with pytest.warns(UserWarning, match="Particles are not finite after 2 steps"):
        found = svgd.run(KEY, 2, 2.0, progress_bar=False)
    assert np.isfinite(svgd.particles(found.params)["a"]).all()
    message = r"log density at the particles must be finite, but got nan at particles \[2\] of 3. Keep the noise away"
    with pytest.raises(ValueError, match=message):
        ngp.Posterior.from_stein(walled, svgd, found.params)
    with pytest.raises(ValueError, match=message):
        ngp.Posterior.from_stein(walled, svgd, found.params, 2.0)
    with pytest.warns(UserWarning, match="stranded"):  # a number behind a wall that is further away, and far below
        ngp.Posterior.from_stein(walled, svgd, found.params, 20.0)


@pytest.mark.long
def test_data_without_noise_have_a_density_in_float32():
    """Where the particles of the demo go, noise 3e-4: a number by the jitter of ``models/stein.py`` alone."""
    data = jnp.linspace(-5.0, 5.0, 100, dtype=jnp.float32)[:, None]
    values = {"lengthscale": jnp.array([6.0]), "variance": jnp.array(4.0), "noise": jnp.array(3e-4)}
    values = jax.tree.map(lambda x: x.astype(jnp.float32), values)
    model = importlib.import_module("models.stein").model
    assert np.isfinite(numpyro.infer.util.log_density(model, (data, jnp.sin(data[:, 0])), {}, values)[0])


@pytest.mark.long
@pytest.mark.parametrize("kind", [einstein.SVGD, einstein.ASVGD])
def test_particles_of_numpyros_engines_are_taken(kind):
    options = {"num_stein_particles": 3, "guide_kwargs": {"init_loc_fn": init_to_sample}}
    options |= {"num_cycles": 1} if kind is einstein.ASVGD else {}
    svgd = kind(normal, numpyro.optim.Adagrad(0.1), einstein.RBFKernel(), **options)
    with pytest.raises(ValueError, match="svgd must be an engine that was run"):
        ngp.Posterior.from_stein(normal, svgd, {})
    found = svgd.run(KEY, 3, progress_bar=False)
    for given in (found.params, found.state):
        samples = ngp.Posterior.from_stein(normal, svgd, given).samples
        assert set(samples) == {"a", "rate"}
        np.testing.assert_allclose(samples["rate"], found.params["rate_auto_loc"], rtol=1e-12)
        assert samples["rate"].shape == (3,)
    with pytest.raises(TypeError, match="args must be left out for a "):
        ngp.Posterior.from_stein(normal, svgd, found.params, 0.0)


def test_components_that_are_beliefs_are_refused():
    def model(y=None):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), X[:3])
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.2), obs=y)

    options = numpyro.optim.Adam(0.1), einstein.RBFKernel()
    with pytest.raises(TypeError, match="the guide of SteinVI must be one whose components have a density"):
        einstein.SteinVI(model, ngp.AutoGP(model), *options)
    mixture = einstein.SteinVI(model, numpyro.infer.autoguide.AutoNormal(model), *options)
    with pytest.raises(TypeError, match="svgd must be an engine whose particles are points, but got a SteinVI"):
        ngp.Posterior.from_stein(model, mixture, {})
