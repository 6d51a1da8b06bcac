"""What a failed fit says: sites, parameters, particles, and the draw of the very step that failed."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.contrib.einstein import SVGD, RBFKernel
from numpyro.infer import SVI, RenyiELBO, Trace_ELBO

import numpyro_gp as ngp
from numpyro_gp.training.faults import traits_of
from numpyro_gp.training.fit import fit
from numpyro_gp.training.loop import NonFiniteLoss
from tests.oracles.engines import Countdown, data, key, model

KEY, DATA = key(), data()


def failing(y):
    """A model whose second site turns NaN at step 4 of plain ascent (x grows by 1 a step), and with it the third."""
    x = numpyro.param("x", 0.5)
    numpyro.factor("push", x)
    numpyro.sample("first", dist.Normal(0.0, 1.0), obs=jnp.zeros(()))
    margin = numpyro.deterministic("margin", jnp.where(x > 4.0, jnp.nan, 1.0))
    numpyro.sample("second", dist.Normal(0.0, jax.lax.stop_gradient(margin)), obs=y[0])
    numpyro.sample("third", dist.Normal(jax.lax.stop_gradient(margin), 1.0), obs=y[1])


def of(model, optimiser, guide=lambda y: None, loss=None):
    return SVI(model, guide, optimiser, loss or Trace_ELBO())


def test_message_names_the_sites_in_model_order():
    with pytest.raises(NonFiniteLoss, match=r"were finite.*'margin' \(value\), 'second' \(nan\), 'third'") as info:
        fit(KEY, of(failing, optax.sgd(1.0)), 9, DATA, progress=False)
    assert info.value.step == 4
    assert info.value.sites == ("margin", "second", "third")
    np.testing.assert_allclose(info.value.result.params["x"], 4.5, rtol=1e-12)


def test_an_infinite_gradient_names_site_and_parameter():
    def kinked(y):
        x = numpyro.param("x", 0.0)
        numpyro.sample("fine", dist.Normal(x, 1.0), obs=y[0])
        numpyro.sample("kink", dist.Normal(jnp.sqrt(jnp.abs(x)), 1.0), obs=y[1])

    with pytest.raises(NonFiniteLoss, match=r"Step 0 .*gradient is not finite.*'kink' \(by 'x'\)") as info:
        fit(KEY, of(kinked, optax.sgd(1.0)), 9, DATA, progress=False)
    assert info.value.sites == ("kink",)
    assert float(info.value.result.params["x"]) == 0.0


def test_a_step_that_is_too_long_is_not_blamed_on_the_gradient():
    """A positive parameter is exp of what moves, 1e6 after this step; every gradient is finite."""

    def model(y):
        scale = numpyro.param("scale", 1.0, constraint=dist.constraints.positive)
        numpyro.sample("y", dist.Normal(0.0, scale), obs=y[0])

    match = r"the step was too long: 'scale' would not be finite after it\. Take smaller"
    with pytest.raises(NonFiniteLoss, match=match):
        fit(KEY, of(model, optax.adam(1e6)), 9, 3.0 + jnp.zeros_like(DATA), progress=False)


def test_a_parameter_that_is_not_finite_from_the_start_is_named():
    def guide(y):
        numpyro.sample("z", dist.Delta(numpyro.param("bound", jnp.inf)))

    def simple(y):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0, validate_args=False), obs=y[0])

    with pytest.raises(NonFiniteLoss, match=r"not finite before this step: 'bound'.*in model order: 'z' .*'y'"):
        fit(KEY, of(simple, optax.sgd(0.1), guide), 9, DATA, progress=False)


@pytest.mark.long
@pytest.mark.parametrize("loss", [Trace_ELBO(), Trace_ELBO(num_particles=3), RenyiELBO(num_particles=3)])
def test_the_diagnosis_draws_with_the_key_of_the_step(loss):
    # The site is NaN for draws above 1: only the very key of the failed step is sure to show it.
    def risky(y):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(jnp.where(z > 1.0, jnp.nan, 0.0), 1.0), obs=y[0])

    def guide(y):
        numpyro.sample("z", dist.Normal(numpyro.param("m", 0.0), 1.0))

    for number in range(4):
        with pytest.raises(NonFiniteLoss) as info:
            fit(jax.random.key(number), of(risky, optax.sgd(0.0), guide, loss), 200, DATA, chunk_size=9, progress=False)
        assert info.value.sites == ("y",), str(info.value)
        assert ("(particle" in str(info.value)) == (loss.num_particles > 1)


def test_a_model_that_is_nan_where_it_starts_is_told_the_remedy():
    def broken(y):
        numpyro.sample("y", dist.Normal(0.0, jnp.log(y[0])), obs=y[1])

    with (  # off by default in older versions of NumPyro
        numpyro.validation_enabled(),
        pytest.raises(ValueError, match="Normal distribution got invalid scale parameter") as info,
    ):
        fit(KEY, of(broken, optax.sgd(0.1)), 5, -DATA, progress=False)
    assert "not finite at its initial values, before step 0. Try a larger jitter" in info.value.__notes__[0]


@pytest.mark.long
def test_stein_failure_names_site_and_particle():
    def broken(y):  # the data pull the particles to 50, the model ends at 3
        location = numpyro.sample("location", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(location * jnp.where(location > 3.0, jnp.nan, 1.0), 0.1), obs=y[0])

    svgd = SVGD(broken, numpyro.optim.Adagrad(0.5), RBFKernel(), num_stein_particles=2)
    with pytest.raises(NonFiniteLoss, match=r"Step \d+ of 90 .*\(particle \d\), in model order: 'y'") as info:
        fit(KEY, svgd, 90, jnp.asarray([50.0]), progress=False)
    assert info.value.step > 0
    assert info.value.sites == ("y",)


def line(y):
    """One observation of a location whose start, and so whose gradient, the test chooses."""
    location = numpyro.sample("location", dist.Normal(0.0, 3.0))
    numpyro.sample("y", dist.Normal(location, 1.0), obs=y[0])


def saturated(start):
    """A guide whose location ``3 tanh(start)`` has no gradient to follow far from zero."""

    def guide(y):
        centre = 3.0 * jnp.tanh(numpyro.param("centre", jnp.asarray(start)))
        numpyro.sample("location", dist.Normal(centre, 0.1))

    return guide


def svi_of(start, step=0.05):
    return of(line, optax.adam(step), saturated(start))


@pytest.mark.parametrize(("start", "step"), [(-40.0, 0.05), (0.3, 1e-9)])
def test_a_fit_that_ends_where_it_began_says_so(start, step):
    """No gradient, or too small a step; the loss itself is noisy."""
    with pytest.warns(UserWarning, match=r"After 120 steps the fit is where it began: no parameter moved.*sqrt|scale"):
        fit(KEY, svi_of(start, step), 120, DATA, progress=False)


@pytest.mark.long
def test_fits_that_move_are_short_go_on_or_are_told_their_start_say_nothing():
    """Warnings are errors here: silence is the assertion."""
    first = fit(KEY, svi_of(0.3), 150, DATA, progress=False)
    fit(KEY, svi_of(0.3), 300, DATA, resume=first, progress=False)  # goes on, long converged
    fit(KEY, svi_of(-40.0), 99, DATA, progress=False)
    fit(KEY, svi_of(-40.0), 120, DATA, init_params={"centre": jnp.asarray(-40.0)}, progress=False)


def shared_model(y):
    shift = numpyro.param("shift", 0.5)
    location = numpyro.sample("location", dist.Normal(shift, 1.0))
    numpyro.sample("y", dist.Normal(location, 1.0), obs=y[0])


def test_nothing_is_assumed_of_a_foreign_engine():
    """Not even of one that has a model, a guide and particles of another sense."""
    foreign = Countdown(bad_step=3)
    foreign.model, foreign.guide, foreign.num_stein_particles = model, model, 5
    assert traits_of(foreign).loss_name == "loss"
    with pytest.raises(ngp.NonFiniteLoss, match=r"were finite before this step\. Try a larger jitter") as info:
        ngp.fit(KEY, foreign, 9, DATA, progress=False)
    assert info.value.sites == ()


@pytest.mark.long
def test_the_bar_names_the_loss(capfd):
    svgd = ngp.stein.SVGD(shared_model, optax.sgd(0.1), num_stein_particles=2)
    ngp.fit(KEY, svgd, 2, jnp.ones(1), progress=True)
    assert "Stein force 1.8" in capfd.readouterr().err
