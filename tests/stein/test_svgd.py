"""The engine: where it starts, its step, its calls, what it says of particles and does with a bad one."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal
from numpyro.infer.reparam import NeuTraReparam

import numpyro_gp as ngp
from numpyro_gp.stein import IMQ, RBF, SVGD, Around, Curvature, Groups, PerSite, svgd_direction
from numpyro_gp.stein.svgd import _tempered
from tests.stein.models import KEY, LABELS, X, gp_model, state_of


@pytest.mark.long
@pytest.mark.parametrize("evaluation", ["vmap", "map"])
def test_a_step_is_the_bare_update(evaluation):
    kernel = Groups([["lengthscale", "weights"]], IMQ())
    svgd = SVGD(gp_model, numpyro.optim.SGD(0.05), kernel, 4, evaluation=evaluation)
    state = state_of(svgd, X, LABELS)
    free, scores = svgd.unconstrained(state), svgd.scores(state, X, LABELS)
    phi = svgd_direction(free, scores, kernel)
    after, force = svgd.update(state, X, LABELS)
    for name, value in svgd.unconstrained(after).items():
        np.testing.assert_allclose(value, free[name] + 0.05 * phi[name], rtol=0, atol=1e-12)
    np.testing.assert_allclose(force, np.sqrt(sum(np.sum(np.square(part)) for part in phi.values())), rtol=1e-10)
    np.testing.assert_allclose(svgd.evaluate(state, X, LABELS), force, rtol=1e-10)


@pytest.mark.long
def test_runs_and_fits_resume(tmp_path):
    """By the same engine, and by one that has seen nothing; a forgotten state of the optimiser is off by 1e-2.

    Loops of 4 and 2 steps are two programs, whose rounding grows with the steps; a fit has one.
    """

    def engine():
        return SVGD(gp_model, optax.adam(0.1), PerSite(), 3)

    options = {"batch": 6, "progress_bar": False}
    whole, first = ngp.fit(KEY, engine(), 4, X, LABELS, batch=6, progress=False), engine()
    plain, half = engine().run(KEY, 4, X, LABELS, **options), first.run(KEY, 2, X, LABELS, **options)
    for svgd in (first, engine()):
        rest = svgd.run(jax.random.key(99), 2, X, LABELS, init_state=half.state, **options)
        for name, value in plain.params.items():
            np.testing.assert_allclose(rest.params[name], value, rtol=1e-6)
        np.testing.assert_allclose(rest.losses, plain.losses[2:], rtol=1e-6)
    ngp.fit(KEY, engine(), 2, X, LABELS, batch=6, progress=False, checkpoint=tmp_path / "s.npz")
    rest = ngp.fit(KEY, engine(), 4, X, LABELS, batch=6, progress=False, resume=tmp_path / "s.npz")
    for name, value in whole.params.items():
        np.testing.assert_allclose(rest.params[name], value, rtol=1e-12)
        np.testing.assert_allclose(plain.params[name], value, rtol=1e-10)


def guarded(limit, root=False):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    numpyro.factor("wall", (jnp.sqrt if root else jnp.log)(limit - b) - a**2)  # NaN beyond the limit


BAD = {"a": jnp.array([0.1, 0.2, 0.3, 0.4]), "b": jnp.array([0.0, -1.0, 9.0, -0.5])}


def guarded_engine(keep=slice(None)):
    start = {name: value[keep] for name, value in BAD.items()}
    return SVGD(guarded, optax.sgd(0.05), num_stein_particles=len(start["a"]), init_particles=start)


@pytest.mark.long
def test_a_bad_particle_is_named_and_does_not_spread():
    svgd, keep, warned = guarded_engine(), np.array([0, 1, 3]), "Particles are not finite after 5 steps: particle 2 at"
    with pytest.warns(UserWarning, match=f"{warned} 'a', particle 2 at 'b'"):
        result = svgd.run(KEY, 5, 2.0, progress_bar=False)
    without = guarded_engine(keep).run(KEY, 5, 2.0, progress_bar=False)
    for name, value in without.params.items():
        np.testing.assert_allclose(result.params[name][keep], value, rtol=1e-9)
    assert np.isnan(result.losses).all(), "the loss says that something is wrong"
    assert float(svgd.particles(result.params)["b"][2]) == 9.0, "it stands where it failed"
    lost = {name: value.at[2].set(jnp.nan) for name, value in result.params.items()}
    with pytest.raises(ValueError, match="the particles' 'a' must be finite"):
        ngp.Posterior.from_stein(guarded, svgd, lost)


@pytest.mark.long
def test_a_bad_particle_reaches_the_others_by_no_path():
    """Neither by a parameter that all share, nor by an optimiser that takes the norm of all."""

    def model(limit):
        shift = numpyro.param("shift", 0.3)
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        numpyro.factor("wall", jnp.log(limit - b) - (b - shift) ** 2)

    def run(b):
        optimiser = optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(0.1))
        svgd = SVGD(model, optimiser, RBF(), len(b), init_particles={"b": b})
        return svgd, svgd.run(KEY, 4, 2.0, progress_bar=False).params

    with pytest.warns(UserWarning, match="particle 2 at 'b'"):
        svgd, found = run(jnp.array([0.0, -1.0, 9.0, 0.5]))
    _, without = run(jnp.array([0.0, -1.0, 0.5]))
    np.testing.assert_allclose(svgd.particles(found)["b"][np.array([0, 1, 3])], svgd.particles(without)["b"], rtol=1e-9)
    np.testing.assert_allclose(svgd.shared(found)["shift"], svgd.shared(without)["shift"], rtol=1e-9)


@pytest.mark.long
def test_a_support_that_another_site_sets_is_refused():
    def moving():
        a = numpyro.sample("a", dist.Weibull(4.0, 2.0))
        numpyro.sample("b", dist.Uniform(0.0, a))

    def given(top):
        numpyro.sample("b", dist.Uniform(0.0, jnp.max(top)))

    with pytest.raises(ValueError, match="site 'b' must be of one fixed support, but got a support that depends on"):
        SVGD(moving, optax.adam(0.1)).init(KEY)
    svgd = SVGD(given, optax.adam(0.1), num_stein_particles=3)
    assert float(svgd.particles(svgd.init(KEY, jnp.arange(4.0)))["b"].max()) < 3.0


@pytest.mark.long
@pytest.mark.parametrize("arguments", [{"limit": 2.0}, {"limit": 9.0, "root": True}], ids=["density", "gradient"])
def test_fit_stops_at_a_bad_particle_with_its_number_and_site(arguments):
    with pytest.raises(ngp.NonFiniteLoss, match=r"\(particle 2\), in model order: 'wall'") as caught:
        ngp.fit(KEY, guarded_engine(), 5, progress=False, **arguments)
    assert caught.value.step == 0
    assert caught.value.sites == ("wall",)


@pytest.mark.long
def test_float32_stays_float32_through_run_and_fit():
    def model(y):
        one = jnp.float32(1.0)
        rate = numpyro.sample("rate", dist.Gamma(4 * one, one))
        numpyro.sample("y", dist.Poisson(rate), obs=y)

    y = jnp.asarray([3, 4])
    start = {"rate": jnp.linspace(1, 5, 8, dtype=jnp.float32)}
    svgd = SVGD(model, optax.adam(0.1), IMQ(), 8, init_particles=start)
    run = svgd.run(KEY, 200, y, progress_bar=False)
    fitted = ngp.fit(KEY, svgd, 200, y, progress=False)
    for params in (run.params, fitted.params):
        rate = svgd.particles(params)["rate"]
        assert rate.dtype == jnp.float32
        assert abs(float(rate.mean()) - 11 / 3) < 0.15  # Gamma(11, 3)


@pytest.mark.long
def test_parameters_of_the_model_are_shared_and_climb_the_average():
    def model(y):
        shift = numpyro.param("shift", 0.0)
        mean = numpyro.sample("mean", dist.Normal(0.0, 0.1))
        numpyro.sample("y", dist.Normal(shift + mean, 1.0), obs=y)

    svgd = SVGD(model, numpyro.optim.SGD(0.5), num_stein_particles=3)
    state = state_of(svgd, 2.0)
    mean = svgd.unconstrained(state)["mean"]
    after = svgd.get_params(svgd.update(state, 2.0)[0])
    np.testing.assert_allclose(after["shift"], 0.5 * np.mean(2.0 - np.asarray(mean)), rtol=1e-12)
    assert set(svgd.particles(state)) == {"mean"}


@pytest.mark.long
def test_a_model_in_the_coordinates_of_a_guide():
    """NeuTra's model holds a trained guide, and with it random keys, which a compiled start cannot copy deeply."""

    def model():
        numpyro.sample("a", dist.Normal(3.0, 0.5))

    guide = AutoMultivariateNormal(model)
    found = SVI(model, guide, optax.adam(0.1), Trace_ELBO()).run(KEY, 200, progress_bar=False)
    neutra = NeuTraReparam(guide, found.params)
    svgd = SVGD(neutra.reparam(model), optax.adam(0.05), RBF(), 5)
    with jax.numpy_rank_promotion("allow"):  # by NumPyro's reparametrised sites
        result = svgd.run(KEY, 150, progress_bar=False)
    latent = svgd.particles(result.params)["auto_shared_latent"]
    draws = np.asarray(jax.vmap(neutra.transform_sample)(latent)["a"])
    # Five particles of a normal at rest: their mean is exact; the start is 0.3 away.
    assert abs(draws.mean() - 3.0) < 0.02
    assert 0.3 < draws.std() < 0.6


@pytest.mark.long
def test_data_that_are_short_are_refused_after_the_start_too():
    """JAX would repeat the last label for the rows that have none."""
    svgd = SVGD(gp_model, optax.sgd(0.1), num_stein_particles=2)
    state = state_of(svgd, X, LABELS)
    message = "y must be of 12 rows or more, as the plate that reads it, but got 5 rows"
    with pytest.raises(ValueError, match=message):
        svgd.scores(state, X, LABELS[:5])
    with pytest.raises(ValueError, match=message):
        svgd.run(KEY, 1, X, LABELS[:5], init_state=state, progress_bar=False)
    with pytest.raises(TypeError, match="rng_key must be one JAX random key, but got 0"):
        svgd.init(0, X, LABELS)


@pytest.mark.long
@pytest.mark.parametrize("is_new", [True, False])
def test_a_state_of_another_engine_is_refused(is_new):
    """Three particles went on as three where four were asked for; a state without a metric was a raw error."""

    def rate():
        numpyro.sample("rate", dist.Weibull(4.0, 2.0))

    def engine(optimiser=None, number=3, **options):
        svgd = SVGD(rate, optimiser or optax.adam(0.1), IMQ(), number, **options)
        if not is_new:
            svgd.init(KEY)
        return svgd

    state = SVGD(rate, optax.adam(0.1), IMQ(), 3).init(KEY)
    for other in (engine(number=4), engine(optax.sgd(0.1)), engine(metric=Curvature())):
        with pytest.raises(ValueError, match="init_state must be of an engine with as many particles"):
            other.run(KEY, 1, init_state=state, progress_bar=False)
    engine().run(KEY, 1, init_state=state, progress_bar=False)


@pytest.mark.long
def test_numpy_arrays_are_cut_into_minibatches():
    def model(y, batch):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", len(y), subsample_size=batch) as index:
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y[index])

    found = []
    for y in (np.arange(4.0), jnp.arange(4.0)):
        svgd = SVGD(model, optax.sgd(0.1), IMQ(), 2)
        found.append(svgd.particles(svgd.run(KEY, 2, y, 2, progress_bar=False).params)["x"])
    np.testing.assert_array_equal(found[0], found[1])


def test_a_temperature_takes_the_type_of_the_particles():
    found = _tempered(np.float64(0.5), jnp.array([3.0], jnp.float32))
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, [1.5])


def model():
    numpyro.sample("rate", dist.Gamma(4.0, 1.0))
    numpyro.sample("w", dist.Beta(jnp.ones(3), 2.0).to_event(1))


def started(init_particles, n=400, key=0):
    svgd = SVGD(model, optax.sgd(0.1), num_stein_particles=n, init_particles=init_particles)
    return svgd.particles(svgd.init(jax.random.key(key)))


@pytest.mark.long
def test_given_values_are_the_start_and_the_rest_is_drawn():
    particles = started(None)
    assert particles["w"].shape == (400, 3)
    assert abs(particles["rate"].mean() - 4.0) < 4 * 2.0 / 20  # four standard errors
    assert 3.0 < particles["rate"].var() < 5.2
    given = jnp.linspace(1.0, 3.0, 5)
    particles = started({"rate": given}, 5)
    np.testing.assert_allclose(particles["rate"], given, rtol=1e-12)
    assert len(np.unique(np.asarray(particles["w"][:, 0]))) == 5


@pytest.mark.long
def test_around_scatters_in_unconstrained_coordinates():
    particles = started(Around({"rate": 2.0}, 0.1))
    logs = np.log(np.asarray(particles["rate"]))
    assert abs(logs.mean() - np.log(2.0)) < 4 * 0.1 / 20
    assert 0.08 < logs.std() < 0.12
    np.testing.assert_allclose(started(Around({"rate": 2.0}, 0.0), 3)["rate"], 2.0, rtol=1e-12)
    inside = started(Around({"w": jnp.array([0.2, 0.3, 0.5])}), 4)["w"]
    assert inside.shape == (4, 3)
    assert 0 < inside.min() <= inside.max() < 1


@pytest.mark.long
def test_a_start_inside_a_compiled_function():
    svgd = SVGD(model, optax.sgd(0.1), num_stein_particles=3, init_particles=Around({"rate": 2.0}, 0.0))
    state = jax.jit(lambda key: svgd.init(key).optim_state)(jax.random.key(0))
    np.testing.assert_allclose(svgd.optim.get_params(state)["rate_auto_loc"], np.log(2.0), rtol=1e-12)


@pytest.mark.long
def test_messages():
    """What ``contracts/misuses_after.py`` does not have."""
    for start, message in (
        ({"rate": jnp.ones(2)}, r"init_particles\['rate'\] must be of shape \(3,\), the 3 particles"),
        (Around({"rate": jnp.ones(3)}), r"must be of shape \(\), one value for all particles, but got shape \(3,\)"),
        ({"rate": jnp.array([1.0, jnp.nan, 1.0])}, r"init_particles\['rate'\] must be finite"),
        (Around({"rate": 0.0}), r"init_particles\['rate'\] must be inside the support of the site, but got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            started(start, 3)


@pytest.mark.long
def test_faults_are_named_by_particle_and_site():
    svgd = guarded_engine()
    state = state_of(svgd, 20.0)
    assert svgd.faults(state, 20.0) == []
    assert svgd.faults(state, 2.0) == [(2, "a"), (2, "b")]  # the density of the whole particle is NaN
    assert svgd.faults(state, 9.0, root=True) == [(2, "b")]  # only the slope of the root, at zero, is infinite
