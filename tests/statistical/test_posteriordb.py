"""The Gaussian-process posteriors of posteriordb by `ngp.NUTS` on this library's primitives: means and mean squares.

`posteriordb.json` has the data and the reference moments of stan-dev/posteriordb, from 10 000 draws of Stan. A moment is
compared within four Monte Carlo errors, those of both sides together: for a right sampler each of the 32 comparisons
fails with probability 6e-5. Chains that do not move have few effective draws, or hundreds of errors: both fail.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC

import numpyro_gp as ngp

POSTERIORS = json.loads((Path(__file__).parent / "posteriordb.json").read_text())
COUNTS = {name: np.array(values, float) for name, values in POSTERIORS["gp_pois_regr"].items()}
CHAINS, ERRORS, LEAST_DRAWS = 4, 4.0, 400


def poisson_regression():
    """``gp_pois_regr``: a process as the log rate of counts, with the function as sampled."""
    X = jnp.asarray(COUNTS["x"])[:, None]
    rho = numpyro.sample("rho", dist.Gamma(25.0, 4.0))
    alpha = numpyro.sample("alpha", dist.HalfNormal(2.0))
    f = ngp.gp("f_tilde", ngp.kernels.RBF(alpha**2, rho), inducing=X)(X)
    numpyro.deterministic("f", f.mean)
    with numpyro.plate("data", len(X)):
        ngp.observe("k", f, ngp.likelihoods.Poisson(), obs=jnp.asarray(COUNTS["k"]))


def regression():
    """``gp_regr``: the function integrated out; ``sigma`` is a variance there."""
    rho = numpyro.sample("rho", dist.Gamma(25.0, 4.0))
    alpha = numpyro.sample("alpha", dist.HalfNormal(2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    X, y = jnp.asarray(COUNTS["x"])[:, None], jnp.asarray(COUNTS["y"])
    ngp.gp_regression("y", ngp.kernels.RBF(alpha**2, rho), X, sigma, obs=y)


def columns_of(draws):
    """Draws ``(chains, draws)`` of each number by its name in posteriordb."""
    found = {}
    for name, values in draws.items():
        flat = np.asarray(values).reshape(*values.shape[:2], -1)
        found |= {name if values.ndim == 2 else f"{name}[{at + 1}]": flat[..., at] for at in range(flat.shape[-1])}
    return found


def deviations(draws, reference):
    """Of each moment its distance from the reference, in Monte Carlo errors of both sides, and its effective draws."""
    columns, found = columns_of(draws), {}
    for name, (mean, mean_error, square, square_error) in reference.items():
        for power, wanted, error in ((1, mean, mean_error), (2, square, square_error)):
            values = columns[name] ** power
            size = effective_sample_size(values)
            own = values.std() / np.sqrt(size)
            found[name, power] = (values.mean() - wanted) / np.hypot(own, error), size
    return found


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("name", "model", "draws"),
    [("gp_pois_regr-gp_pois_regr", poisson_regression, 400), ("gp_pois_regr-gp_regr", regression, 1000)],
)
def test_reference_posteriors(name, model, draws):
    options = {"num_warmup": 250, "num_chains": CHAINS, "chain_method": "vectorized", "progress_bar": False}
    mcmc = MCMC(ngp.NUTS(model), num_samples=draws, **options)
    mcmc.run(jax.random.key(1))
    found = deviations(mcmc.get_samples(group_by_chain=True), POSTERIORS["reference"][name])
    worst = max(found.items(), key=lambda item: abs(item[1][0]))
    fewest = min(found.items(), key=lambda item: item[1][1])
    assert all(size > LEAST_DRAWS for _, size in found.values()), fewest
    assert all(abs(distance) < ERRORS for distance, _ in found.values()), worst
    rms = np.sqrt(np.mean([distance**2 for distance, _ in found.values()]))
    assert rms < 2, rms  # together they are about one error away


@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_chains_that_stay_are_found_out(noise):
    """At the reference means and all but still: too few effective draws, or mean squares without the variance."""
    reference = POSTERIORS["reference"]["gp_pois_regr-gp_regr"]
    walk = noise * np.random.default_rng(0).normal(size=(CHAINS, 1000))
    with np.errstate(invalid="ignore"):
        found = deviations({name: values[0] + walk for name, values in reference.items()}, reference)
    assert not all(size > LEAST_DRAWS and abs(distance) < ERRORS for distance, size in found.values())
