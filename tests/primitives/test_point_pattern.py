"""Point patterns: the density of a pattern, its expectation, and patterns drawn by thinning."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import integrate, stats

import numpyro_gp as ngp
from numpyro_gp.beliefs import Coupled
from numpyro_gp.kernels import RBF

RNG = np.random.default_rng(4)
Z = jnp.linspace(0.0, 2.0, 5)[:, None]
RULE, WEIGHTS = np.polynomial.legendre.leggauss(12)
NODES, WEIGHTS = jnp.asarray(RULE + 1)[:, None], jnp.asarray(WEIGHTS)
EVENTS = jnp.asarray([[0.2], [0.25], [1.4], [1.9]])
BELIEF = Coupled(jnp.asarray(RNG.normal(size=5)), 0.4 * jnp.eye(5))


def model(nodes, weights, events=None, *, batch=None):
    f = ngp.gp("f", RBF(1.0, 0.8), Z, mean=1.5)
    ngp.point_pattern("y", f, nodes, weights, events, batch=batch)
    return f


def term(value, **options):
    found = handlers.substitute(handlers.seed(model, 0), {"f": value})
    trace = handlers.trace(found).get_trace(NODES, WEIGHTS, EVENTS, **options)
    return jnp.sum(trace["y"]["fn"].log_prob(trace["y"]["value"])) * (trace["y"]["scale"] or 1.0), found


@pytest.mark.long
def test_the_density_is_that_of_the_pattern():
    """``sum m(s_i) - int exp(m + v / 2)``, the integral by SciPy: to 1e-6 by twelve nodes."""
    found, run = term(BELIEF)
    f = run(NODES, WEIGHTS)

    def mean(x):
        at = f(jnp.asarray([[x]]))
        return float(jnp.exp(at.loc + 0.5 * at.variance)[0])

    wanted = float(jnp.sum(f(EVENTS).loc)) - integrate.fixed_quad(np.vectorize(mean), 0.0, 2.0, n=14)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.long
def test_thinned_patterns_have_the_intensity():
    """200 patterns: numbers in two parts against Poisson; a bound that is far too low changes nothing."""
    intensity = lambda X: jnp.log(2 + 20 * jnp.exp(-8 * (X[:, 0] - 0.5) ** 2))  # noqa: E731
    whole = lambda a, b: 2 * (b - a) + integrate.quad(lambda x: 20 * np.exp(-8 * (x - 0.5) ** 2), a, b)[0]  # noqa: E731
    compiled = jax.jit(intensity)
    for bound in (None, 1.0):
        drawn = [ngp.thinned(jax.random.key(n), compiled, [0.0], [2.0], bound=bound)[:, 0] for n in range(100)]
        for low, high in ((0.0, 0.6), (0.6, 2.0)):
            count = sum(int(np.sum((low <= x) & (x < high))) for x in drawn)
            assert abs(count - 100 * whole(low, high)) < 4 * np.sqrt(100 * whole(low, high))


def test_a_region_without_events_is_data_as_well():
    """What is left of the density is ``-int exp(f)``: four events add ``sum f(s_i)``."""
    term_of = lambda events: log_density(model, (NODES, WEIGHTS, events), {}, {"f": BELIEF})[0]  # noqa: E731
    f = term(BELIEF)[1](NODES, WEIGHTS)
    np.testing.assert_allclose(term_of(EVENTS) - term_of(EVENTS[:0]), jnp.sum(f(EVENTS).loc), rtol=1e-9)


def test_bad_patterns_are_refused():
    def of_model(**change):
        rows = {"nodes": NODES, "weights": WEIGHTS, "events": EVENTS}
        return lambda: log_density(model, (), rows | change, {"f": jnp.zeros(5)})

    def drawn(height=0.0, low=0.0, high=1.0, **options):
        intensity = lambda X: height + 0 * X[:, 0]  # noqa: E731
        return lambda: ngp.thinned(jax.random.key(0), intensity, [low], [high], **options)

    for call, message in (
        (of_model(weights=-WEIGHTS), "weights must be zero or positive"),
        (of_model(weights=jnp.ones(3)), r"weights must be a number or of shape \(12,\), but got shape \(3,\)"),
        (of_model(events=jnp.ones((2, 2))), "events must be an array with 1 columns"),
        (drawn(jnp.nan), r"exp\(log_intensity\(X\)\) must be finite in the box, but got nan"),
        (drawn(1e4), r"exp\(log_intensity\(X\)\) must be finite in the box, but got inf"),
        (drawn(bound=-1.0), "bound must be zero or positive"),
        (drawn(low=1.0, high=0.0), "low and high must be corners of a box"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.long
def test_predictions_are_numbers_of_events_by_cell():
    """Poisson counts given f, whose moments are those of a log-normal mixture; at an event there is no cell."""
    pattern, mean, variance = (
        ngp.likelihoods.PointPattern(jnp.array([0.5, 0.0])),
        jnp.array([1.0, 1.0]),
        jnp.full(2, 0.3),
    )
    rate = 0.5 * np.exp(1.15)
    np.testing.assert_allclose(pattern.predictive_mean(mean, variance), [rate, 0.0], rtol=1e-12)
    np.testing.assert_allclose(
        pattern.predictive_variance(mean, variance)[0], rate + rate**2 * np.expm1(0.3), rtol=1e-12
    )
    density = lambda f: np.exp(2 * f - 0.5 * np.exp(f)) * stats.norm.pdf(f, 1.0, np.sqrt(0.3))  # noqa: E731
    wanted = [np.log(integrate.quad(density, -5, 6)[0]), 2 + 0.5 * 4 * 0.3]
    np.testing.assert_allclose(pattern.predictive_log_prob(jnp.array([2.0, 2.0]), mean, variance), wanted, rtol=1e-7)
    assert pattern.conditional(mean).mean[1] == 0
