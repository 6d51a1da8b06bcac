"""The training loop against NumPyro's own ``SVI.run``, and what it prints."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.contrib.einstein import ASVGD, SVGD, RBFKernel
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from numpyro_gp.training.fit import fit
from tests.oracles.engines import Countdown, data, engine, key, model

KEY, DATA = key(), data()


@pytest.mark.long
def test_steps_equal_those_of_svi_run():
    expected = engine().run(KEY, 60, DATA, batch=2, progress_bar=False)
    result = fit(KEY, engine(), 60, DATA, batch=2, chunk_size=7, progress=False)
    assert isinstance(result, ngp.FitResult)
    assert result.losses.shape == (60,)
    # A step more or less, or a key used twice, moves losses by order one.
    np.testing.assert_allclose(result.losses, expected.losses, rtol=1e-12)
    for name, value in expected.params.items():
        np.testing.assert_allclose(result.params[name], value, rtol=1e-12)


@pytest.mark.long
def test_stein_engine_equals_its_own_run():
    """And an annealed one is told its horizon."""

    def svgd(kind=SVGD, **options):
        return kind(model, numpyro.optim.Adagrad(0.1), RBFKernel(), num_stein_particles=3, **options)

    expected = svgd().run(KEY, 12, DATA, progress_bar=False)
    result = fit(KEY, svgd(), 12, DATA, chunk_size=5, progress=False)
    for name, value in expected.params.items():
        np.testing.assert_allclose(result.params[name], value, rtol=1e-10)
    assert np.all(np.asarray(result.losses) > 0)  # norms of the Stein force
    state = fit(KEY, svgd(ASVGD, num_cycles=2), 6, DATA, progress=False).state
    assert (float(state.num_steps), float(state.step_count)) == (6.0, 6.0)


def test_init_params_start_the_run():
    start = {"centre": jnp.asarray(7.0), "scale": jnp.asarray(2.0)}
    result = fit(KEY, engine(optax.sgd(1e-12)), 1, DATA, init_params=start, progress=False)
    np.testing.assert_allclose([result.params["centre"], result.params["scale"]], [7.0, 2.0], atol=1e-6)


def test_arrays_are_arguments_and_the_rest_is_fixed():
    seen = {}

    def inspecting(X, options, y=None, *, batch=None, name="y", link=None):
        if isinstance(X, jax.core.Tracer):
            seen.update(X=X, y=y, shift=options["shift"], batch=batch, name=name, link=link, rate=options["rate"])
        location = numpyro.param("location", 0.0)
        with numpyro.plate("data", X.shape[0], subsample_size=batch) as rows:
            numpyro.sample(name, dist.Normal(link(location), 1.0), obs=y[rows])

    svi = SVI(inspecting, lambda *args, **kwargs: None, optax.sgd(0.1), Trace_ELBO())
    options = {"shift": np.ones(2), "rate": 0.5, "nothing": None}
    fit(KEY, svi, 3, np.ones((4, 1)), options, y=DATA, batch=2, link=jnp.tanh, progress=False)
    assert all(isinstance(seen[name], jax.core.Tracer) for name in ("X", "y", "shift"))
    assert (seen["batch"], seen["name"], seen["link"], seen["rate"]) == (2, "y", jnp.tanh, 0.5)


def test_one_bar_on_standard_error_and_silence(capfd):
    fit(KEY, Countdown(), 40, DATA, chunk_size=10, progress=False)
    assert capfd.readouterr() == ("", "")
    fit(KEY, Countdown(), 40, DATA, chunk_size=10)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "40/40" in err
    assert "loss 61" in err
