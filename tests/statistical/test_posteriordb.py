"""The Gaussian-process posteriors of posteriordb by `ngp.NUTS` on this library's primitives: means and mean squares.

`posteriordb.json` has the data and the reference moments of stan-dev/posteriordb, from 10 000 draws of Stan. A moment is
compared within four Monte Carlo errors, those of both sides together: for a right sampler each of the 164 comparisons
fails with probability 6e-5. Chains that do not move have few effective draws, or hundreds of errors: both fail.

The third posterior, ``accel_gp``, has two processes by Laplace's eigenfunctions (brms), which are no block of this
library: its functions are written by hand, and what is tested of ours are `ngp.NUTS` and `ngp.observe` of known functions.
"""

import json
import os
import subprocess
import sys
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
from tests.precision import x64

POSTERIORS = json.loads((Path(__file__).parent / "posteriordb.json").read_text())
COUNTS = {name: np.array(values, float) for name, values in POSTERIORS["gp_pois_regr"].items()}
MCYCLE = {name: np.array(values, float) for name, values in POSTERIORS["mcycle"].items()}
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


def eigenfunctions(x, half_width, count):
    """Laplace's eigenfunctions ``(N, count)`` on ``[-half_width, half_width]``, and roots of their eigenvalues."""
    roots = np.arange(1, count + 1) * np.pi / (2 * half_width)
    return np.sin(roots * (x[:, None] + half_width)) / np.sqrt(half_width), roots


def acceleration():
    """``accel_gp``: mean and log noise of a motorcycle's helmet over time, each an RBF process by its eigenfunctions."""
    x = (MCYCLE["times"] - MCYCLE["times"].min()) / np.ptp(MCYCLE["times"])
    functions = {}
    for end, level, scale, count in (("", -13.0, 36.0, 40), ("_sigma", 0.0, 10.0, 20)):
        basis, roots = (jnp.asarray(part) for part in eigenfunctions(x - x.mean(), 1.5, count))
        intercept = numpyro.sample(f"Intercept{end}", dist.StudentT(3.0, level, scale))
        sd = numpyro.sample(f"sdgp{end}_1", dist.FoldedDistribution(dist.StudentT(3.0, 0.0, 36.0)))
        length = numpyro.sample(f"lscale{end}_1", dist.InverseGamma(1.124909, 0.0177))
        z = numpyro.sample(f"zgp{end}_1", dist.Normal(0.0, 1.0).expand([count]).to_event(1))
        spectrum = sd * (2 * np.pi) ** 0.25 * jnp.sqrt(length) * jnp.exp(-0.25 * (length * roots) ** 2)
        functions[end] = intercept + basis @ (spectrum * z)
    with numpyro.plate("data", len(x)):
        noise = ngp.likelihoods.Gaussian(jnp.exp(functions["_sigma"]))
        ngp.observe("y", dist.Delta(functions[""]), noise, obs=jnp.asarray(MCYCLE["accel"]))


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


def compared(name, model, warmup, draws, least, accept=0.8, chains=CHAINS):
    """Run chains, and compare what they say with the reference."""
    with x64(True):
        sampler = ngp.NUTS(model, target_accept_prob=accept)
        mcmc = MCMC(
            sampler,
            num_warmup=warmup,
            num_samples=draws,
            num_chains=chains,
            chain_method="vectorized",
            progress_bar=False,
        )
        mcmc.run(jax.random.key(1))
        found = deviations(mcmc.get_samples(group_by_chain=True), POSTERIORS["reference"][name])
    worst = max(found.items(), key=lambda item: abs(item[1][0]))
    fewest = min(found.items(), key=lambda item: item[1][1])
    print(f"{name}: worst {worst}, fewest effective draws {fewest}")
    assert all(size > least for _, size in found.values()), fewest
    assert all(abs(distance) < ERRORS for distance, _ in found.values()), worst
    rms = np.sqrt(np.mean([distance**2 for distance, _ in found.values()]))
    assert rms < 2, rms  # together they are about one error away


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("name", "model", "draws"),
    [
        ("gp_pois_regr-gp_pois_regr", poisson_regression, 600),
        ("gp_pois_regr-gp_regr", regression, 1000),
    ],
)
def test_reference_posteriors(name, model, draws):
    compared(name, model, 400, draws, LEAST_DRAWS)


@pytest.mark.statistical
def test_the_motorcycle_of_posteriordb():
    """Trajectories have a thousand steps: in a process of its own, whose program is optimised, unlike those of tests."""
    command = [sys.executable, "-m", "tests.statistical.test_posteriordb"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=os.environ | {"XLA_FLAGS": ""}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_chains_that_stay_are_found_out(noise):
    """At the reference means and all but still: too few effective draws, or mean squares without the variance."""
    reference = POSTERIORS["reference"]["gp_pois_regr-gp_regr"]
    walk = noise * np.random.default_rng(0).normal(size=(CHAINS, 1000))
    with np.errstate(invalid="ignore"):
        found = deviations({name: values[0] + walk for name, values in reference.items()}, reference)
    assert not all(size > LEAST_DRAWS and abs(distance) < ERRORS for distance, size in found.values())


if __name__ == "__main__":
    compared("mcycle_gp-accel_gp", acceleration, 200, 150, 40, accept=0.9, chains=2)
