"""Data inside of `numpyro.contrib.control_flow.scan`: each step has its own, as if the loop were written out."""

import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.infer.reparam import LocScaleReparam
from numpyro.infer.util import log_density
from scipy.stats import multivariate_normal

import numpyro_gp as ngp

STEPS = 4
SCALES = jnp.asarray([0.3, 0.6, 1.2, 2.4])
Z = jnp.linspace(-1.0, 1.0, 3)[:, None]
KERNEL = ngp.kernels.RBF(1.0, 0.7)


def data(rows):
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.normal(size=(rows, 1))), jnp.asarray(rng.normal(size=(STEPS, rows)))


# As many rows as steps: then the scales of the steps would pass for those of the rows.
@pytest.mark.parametrize(
    ("rows", "likelihood", "is_belief"),
    [
        (STEPS, ngp.likelihoods.Gaussian, True),
        (6, ngp.likelihoods.Gaussian, False),
        (STEPS, lambda scale: ngp.likelihoods.StudentT(4.0, scale), True),
    ],
)
def test_observations_of_a_scan_are_those_of_a_loop(rows, likelihood, is_belief):
    X, Y = data(rows)
    mean = jnp.asarray([0.5, -1.0, 0.3])
    value = ngp.beliefs.Coupled(mean, 0.5 * jnp.eye(3)) if is_belief else mean

    def scanned(Y):
        f = ngp.gp("f", KERNEL, Z)

        def step(carry, now):
            with numpyro.plate("data", rows):
                ngp.observe("y", f(X), likelihood(now[0]), obs=now[1])
            return carry, None

        scan(step, 0.0, (SCALES, Y), length=STEPS)

    def looped(Y):
        f = ngp.gp("f", KERNEL, Z)
        for t in range(STEPS):
            with numpyro.plate(f"data{t}", rows):
                ngp.observe(f"y{t}", f(X), likelihood(SCALES[t]), obs=Y[t])

    found, wanted = (log_density(model, (Y,), {}, {"f": value})[0] for model in (scanned, looped))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize(("rows", "is_collapsed"), [(STEPS, False), (STEPS, True), (6, True)])
def test_regressions_of_a_scan_have_the_evidence_of_each_step(rows, is_collapsed):
    X, Y = data(rows)

    def scanned(Y):
        def step(carry, now):
            inducing = X if is_collapsed else None
            ngp.gp_regression("y", KERNEL, X, now[0] ** 2, inducing=inducing, jitter=1e-9, obs=now[1])
            return carry, None

        scan(step, 0.0, (SCALES, Y), length=STEPS)

    gram = np.exp(-0.5 * (np.asarray(X) - np.asarray(X).T) ** 2 / 0.49)
    wanted = [
        multivariate_normal(np.zeros(rows), gram + float(scale) ** 2 * np.eye(rows)).logpdf(np.asarray(y))
        for scale, y in zip(SCALES, Y, strict=True)
    ]
    np.testing.assert_allclose(log_density(scanned, (Y,), {}, {})[0], sum(wanted), rtol=1e-6)


def with_processes(Y):
    """A process for each step."""
    X = jnp.linspace(-1.0, 1.0, Y.shape[1])[:, None]

    def step(carry, now):
        f = ngp.gp("f", KERNEL, Z)
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=now)
        return carry, None

    scan(step, 0.0, Y)


def test_processes_of_a_scan_are_sampled_and_refused_by_guides():
    _, Y = data(5)
    X = jnp.linspace(-1.0, 1.0, 5)[:, None]
    values = jnp.asarray(np.random.default_rng(1).normal(size=(STEPS, 3)))

    def looped(Y):
        for t in range(STEPS):
            f = ngp.gp(f"f{t}", KERNEL, Z)
            with numpyro.plate(f"data{t}", 5):
                ngp.observe(f"y{t}", f(X), ngp.likelihoods.Gaussian(0.3), obs=Y[t])

    found, _ = log_density(with_processes, (Y,), {}, {"f": values})
    wanted, _ = log_density(looped, (Y,), {}, {f"f{t}": values[t] for t in range(STEPS)})
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    guide = ngp.AutoGP(with_processes)
    with numpyro.handlers.seed(rng_seed=0), pytest.raises(ValueError, match=r"outside of control_flow.scan.*\['f'\]"):
        guide(Y)


def test_a_process_has_no_scale_for_reparameterisations():
    def model():
        ngp.gp("f", KERNEL, Z)

    moved = numpyro.handlers.reparam(model, config={"f": LocScaleReparam()})
    with pytest.raises(AttributeError, match=r"the process 'f'\. Leave 'f' out of its config"):
        numpyro.handlers.seed(moved, 0)()


@pytest.mark.parametrize("kind", ["whole", "plate", "both"])
def test_regressions_by_neighbours_in_a_scan_have_the_density_of_each_step(kind):
    """Given all rows before each it is that of the exact process, as SciPy has it: they could not be concatenated."""
    X, Y = data(6)
    near = ngp.neighbours(X, 5)

    def model(Y):
        def step(carry, now):
            options = {"obs": now[1], "inducing": Z if kind == "both" else None}
            if kind == "plate":
                with numpyro.plate("data", near.size) as rows:
                    ngp.gp_regression("y", KERNEL, near[rows], now[0], **options)
            else:
                ngp.gp_regression("y", KERNEL, near, now[0], **options)
            return carry, None

        scan(step, 0.0, (SCALES, Y), length=STEPS)

    apart = np.asarray(X) - np.asarray(X).T
    covariances = [np.exp(-(apart**2) / (2 * 0.7**2)) + scale * np.eye(6) for scale in SCALES]
    wanted = sum(multivariate_normal(None, own).logpdf(y) for own, y in zip(covariances, np.asarray(Y), strict=True))
    np.testing.assert_allclose(log_density(model, (Y,), {}, {})[0], wanted, rtol=1e-6)
