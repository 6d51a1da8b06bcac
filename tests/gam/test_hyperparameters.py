"""What unconstrained hyper-parameters stand for: against the priors' closed forms."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import numpyro_gp as ngp
from numpyro_gp.gam.model import model as own

RNG = np.random.default_rng(1)
DATA = {"x": RNG.uniform(size=20), "z": RNG.normal(size=20), "y": RNG.normal(size=20), "n": RNG.poisson(2.0, 20)}


def test_a_vector_is_scales_lengthscales_noise_and_its_density():
    model = ngp.gam.model("y ~ te(x, z, num_inducing=5) + linear(z)", DATA)
    vector_layout = own.vector_layout_of(model)
    assert vector_layout.shapes == {"f_lengthscale": (2,), "f_scale": (2,), "noise": ()}
    assert vector_layout.is_exact
    assert sum(map(len, vector_layout.places.values())) == 5
    free, traced = RNG.normal(size=5), own.CompiledPriors(model, vector_layout)
    found, start = traced(free).values, traced.start
    likelihood = own.evaluate(model, vector_layout.by_name(jnp.asarray(free))).likelihood
    size, noise = model.start.size, model.start.noise
    lengths, scales, own_noise = np.exp(free[:2]), np.exp(free[2:4]), np.exp(free[4])
    np.testing.assert_allclose(found.scales, [*scales, 3 * size])
    np.testing.assert_allclose(found.lengths, [lengths, [1, 1], [1, 1]])
    np.testing.assert_allclose(found.noise, own_noise)
    np.testing.assert_allclose(likelihood.scale, own_noise)
    median = 2.0 * np.sqrt(2.0)
    density = dist.LogNormal(np.log(median), 0.8).log_prob(lengths).sum() + dist.HalfNormal(size).log_prob(scales).sum()
    density += dist.LogNormal(np.log(noise), 1.0).log_prob(own_noise) + free.sum()
    np.testing.assert_allclose(found.log_density, density)
    means = [median * np.exp(0.32)] * 2 + [size * np.sqrt(2 / np.pi)] * 2 + [noise * np.exp(0.5)]
    np.testing.assert_allclose(start, np.log(means), rtol=1e-5)


@pytest.mark.parametrize("scale", [0.5, np.full(20, 0.5)])
def test_noise_of_one_size_is_exact(scale):
    """With one for each row there are pseudo-data for each row."""
    model = ngp.gam.model("y ~ linear(x)", DATA, lambda: ngp.likelihoods.Gaussian(jnp.asarray(scale)))
    assert own.vector_layout_of(model).is_exact == (np.ndim(scale) == 0)
    own_prior = lambda: ngp.likelihoods.Gaussian(numpyro.sample("s", dist.Gamma(2)))  # noqa: E731
    layout = own.vector_layout_of(ngp.gam.model("y ~ linear(x)", DATA, own_prior))
    assert layout.shapes == {"f_scale": (1,), "s": ()}


SMOOTH = "te(x, z, num_inducing=5) + s(x, cyclic=True, num_inducing=5) + linear(z)"


@pytest.mark.parametrize(
    ("family", "terms"),
    [
        *((family, SMOOTH) for family in ("gaussian", "student_t", "negative_binomial", "gamma", "beta")),
        ("student_t", "z"),
        ("gaussian", "1"),
        ("poisson", "1"),
    ],
)
def test_the_closed_form_is_the_traced_model(family, terms):
    y = np.clip(np.abs(DATA["y"]), 0.05, 0.95) if family in ("gamma", "beta") else DATA["n"]
    model = ngp.gam.model(f"y ~ {terms}", DATA | {"y": y}, family)
    vector_layout = own.vector_layout_of(model)
    plain, traced = own.ClosedFormPriors(model, vector_layout), own.CompiledPriors(model, vector_layout)
    np.testing.assert_allclose(plain.start, traced.start, rtol=1e-6, atol=1e-6)
    free = RNG.normal(size=sum(map(len, vector_layout.places.values())))
    for one, other in zip((*plain(free).values, plain(free).slopes), (*traced(free).values, traced(free).slopes)):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
