"""Threads that share NumPyro's stack of handlers: each gets what it would get alone."""

import traceback
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import MCMC, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import numpyro_gp as ngp
from numpyro_gp.programs.handler_lock import turn
from numpyro_gp.programs.private import active_handlers

KEY = jax.random.key(0)
X = np.linspace(0.0, 1.0, 6)[:, None]
Y = np.sin(5 * X[:, 0])
THREADS = 6


def model(X, y=None):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.3))
    f = ngp.gp("f", ngp.kernels.RBF(1.0, scale), jnp.linspace(0.0, 1.0, 3)[:, None])
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)


def refused(X, y=None):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.3))
    ngp.gp("f", ngp.kernels.RBF(1.0, scale), jnp.zeros(3))


RUNS = {
    "fit": lambda: ngp.fit(KEY, SVI(refused, ngp.AutoGP(refused), optax.sgd(0.01), Trace_ELBO()), 1, X, Y),
    "NUTS": lambda: MCMC(ngp.NUTS(refused), num_warmup=1, num_samples=1, progress_bar=False).run(KEY, X, Y),
    "particles": lambda: ngp.fit(KEY, ngp.stein.SVGD(refused, optax.sgd(0.01), num_stein_particles=2), 1, X, Y),
    "prediction": lambda: ngp.Posterior.from_mcmc(refused, {"scale": jnp.ones(2)}).predict(KEY, X),
}


@pytest.mark.parametrize("name", RUNS)
def test_an_error_in_a_model_shows_the_users_frames_and_none_of_the_librarys(name, monkeypatch):
    with pytest.raises(ValueError, match="must be") as short:
        RUNS[name]()
    files = [frame.filename for frame in traceback.extract_tb(short.tb)]
    assert files[-1] == __file__  # the line of the model that is refused
    assert len(files) <= 8, files
    assert short.value.__context__ is None
    monkeypatch.setenv("NUMPYRO_GP_TRACEBACK_FILTERING", "off")
    with pytest.raises(ValueError, match="must be") as whole:
        RUNS[name]()
    assert len(traceback.extract_tb(whole.tb)) > len(files)
    assert str(whole.value) == str(short.value)


@pytest.mark.long
def test_a_refusal_of_a_value_shows_the_call_that_was_made(monkeypatch):
    """Checks of values come at the end of a program, where nothing of the model is left to show."""
    monkeypatch.delenv("NUMPYRO_GP_TRACEBACK_FILTERING", raising=False)

    def model(X):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.3))
        ngp.gp_regression("y", ngp.kernels.RBF(1.0, scale), X, noise_variance=-1.0, obs=Y)

    with pytest.raises(ValueError, match="noise_variance must be positive") as refused:
        ngp.fit(KEY, SVI(model, ngp.AutoGP(model), optax.sgd(0.01), Trace_ELBO()), 1, X)
    assert [frame.filename for frame in traceback.extract_tb(refused.tb)] == [__file__]


@pytest.mark.long
def test_six_threads_predict_and_fit_as_one_does():
    guide = ngp.AutoGP(model, rest=AutoNormal)
    svi = SVI(model, guide, optax.sgd(0.01), Trace_ELBO())
    posterior = ngp.Posterior.from_svi(model, guide, ngp.fit(KEY, svi, 1, X, Y, progress=False).params)

    def fit(rows):
        svi = SVI(model, ngp.AutoGP(model, rest=AutoNormal), optax.sgd(0.01), Trace_ELBO())
        return ngp.fit(KEY, svi, 1, X, Y, progress=False).losses + rows.sum()

    ask = {
        "predict": lambda rows: posterior.predict(KEY, rows, num_samples=3).mean,
        "predictor": lambda rows: posterior.predictor(KEY, num_samples=3)(rows).mean,
        "functions": lambda rows: posterior.functions(KEY, 2, rows, num_features=4)(rows),
        "medians": lambda rows: guide.median(posterior.params)["f"] + rows.sum(),
        "fit": fit,
    }
    jobs = [(name, X[:2] + 0.1 * number) for number in range(2) for name in ask for _ in range(2)]
    alone_once = {(name, rows[0, 0]): np.asarray(ask[name](rows)) for name, rows in jobs}
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda job: np.asarray(ask[job[0]](job[1])), jobs))
    for (name, rows), values in zip(jobs, found, strict=True):
        np.testing.assert_array_equal(values, alone_once[name, rows[0, 0]])
    assert active_handlers() == []


def test_a_predictor_that_knows_its_program_waits_for_nobody():
    posterior = ngp.Posterior.from_mcmc(model, {"f": jnp.zeros((2, 3)), "scale": jnp.ones(2)})
    predictor = posterior.predictor(KEY)
    wanted = predictor(X[:2]).mean
    with turn, ThreadPoolExecutor(1) as pool:  # this thread keeps its turn
        np.testing.assert_array_equal(pool.submit(lambda: predictor(X[:2]).mean).result(timeout=30), wanted)
