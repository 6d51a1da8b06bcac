"""The first point of a fit is the best of a grid by its own objective: no function that wiggles is taken for noise."""

from functools import cache, partial
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO, init_to_median, init_to_value
from numpyro.infer.autoguide import AutoDelta, AutoGuideList, AutoMultivariateNormal, AutoNormal
from numpyro.infer.svi import SVIState
from scipy.optimize import minimize
from scipy.stats import lognorm, multivariate_normal

import numpyro_gp as ngp
from numpyro_gp.gam.search.engines import LOOK_STEPS
from numpyro_gp.rows.call import Arguments
from numpyro_gp.rows.feeds import feed_of
from numpyro_gp.training.first_state import LENGTHSCALES, NOISES, SHORT, best_start, directions, movable
from numpyro_gp.training.fit import still_rises
from tests.compiling import counted
from tests.precision import x64

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(-1.7, 1.7, 30))
Y = np.sin(2 * np.pi * X / 0.35 + 0.6 * np.sin(3 * X)) + 0.1 * RNG.normal(size=30)
X, Y = X[:, None] / X.std(), (Y - Y.mean()) / Y.std()


def model(X, y=None):
    """What the guide shows: medians of the priors are a lengthscale of 1, where that of these data is 0.07."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(X, ard=False))
    variance = numpyro.sample("variance", ngp.starting.variance_prior())
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    return ngp.gp_regression("y", ngp.kernels.RBF(variance, lengthscale), X, noise_variance=noise**2, obs=y)


def svi(guide, particles=1, of=model):
    return SVI(of, guide, optax.adam(0.1), Trace_ELBO(num_particles=particles))


def run(guide, steps, dtype="float64", particles=1, **options):
    return ngp.fit(KEY, svi(guide, particles), steps, X.astype(dtype), Y.astype(dtype), progress=False, **options)


@cache
def lowest_loss():
    """By SciPy, from each point of a grid: minus the log joint density of data, lengthscale, variance and noise."""

    def loss(logs):
        values = lengthscale, variance, noise = np.exp(logs)
        matrix = variance * np.exp(-0.5 * ((X - X.T) / lengthscale) ** 2) + noise**2 * np.eye(len(X))
        prior = sum(lognorm.logpdf(v, 1.0, scale=np.exp(m)) for v, m in zip(values, (0.0, 0.0, -1.0)))
        return -multivariate_normal.logpdf(Y, np.zeros(len(X)), matrix) - prior

    starts = [np.log([a, 1.0, b]) for a in (0.03, 0.1, 0.3, 1.0) for b in (0.1, 1.0)]
    return min(minimize(loss, start, method="L-BFGS-B", bounds=[(-5, 3)] * 3).fun for start in starts)


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_fit_ends_at_the_best_optimum_where_one_from_medians_ends_in_noise(dtype):
    with x64(dtype == "float64"):
        guide, best = ngp.AutoGP(model), lowest_loss()
        found = run(guide, 150, dtype, search=True)
        assert found.losses.dtype == dtype
        assert float(guide.median(found.params)["noise"]) < 0.2
        assert abs(found.losses[-1] - best) < 0.5
        if dtype == "float32":  # the user's default; in double precision it is the same trap
            trapped = run(guide, 150, dtype, search=False)
            assert float(guide.median(trapped.params)["noise"]) > 0.9
            assert trapped.losses[-1] > best + 10


@pytest.mark.long
@pytest.mark.parametrize("kind", [AutoNormal, AutoMultivariateNormal])
def test_guides_of_numpyro_start_at_the_best_point_too(kind):
    guide = kind(model, init_loc_fn=init_to_median)
    # Short of noise and of the true lengthscale, 16 steps tell which way a fit goes.
    trapped, found = (run(guide, 16, particles=4, search=search) for search in (None, True))
    assert found.losses[0] < trapped.losses[0] - 50
    lengths = [float(guide.median(result.params)["lengthscale"]) for result in (trapped, found)]
    assert lengths[0] > 0.3
    assert 0.03 < lengths[1] < 0.2


def state_of(engine, *data):
    """The first state of a fit, where its arrays come from, and an engine of which every step is recorded."""
    feed = feed_of(engine, KEY, Arguments(tuple(map(jnp.asarray, data)), {}))
    return engine.init(KEY, *data), feed


@pytest.mark.long
def test_the_grid_is_of_lengthscales_and_noises_and_the_lowest_loss_wins():
    engine = svi(AutoDelta(model, init_loc_fn=init_to_median))
    state, feed = state_of(engine, X, Y)
    start = engine.get_params(state)
    tried = []

    def advance(other, length, arrays):
        assert length == 1
        tried.append({name: np.ravel(value / start[name])[0] for name, value in engine.get_params(other).items()})
        lost = len(tried) in (3, 4)
        return 1, other, np.asarray([np.nan if len(tried) == 3 else -99.0 * lost - (len(tried) == 7)]), len(tried) != 4

    best = best_start(engine, feed, state, advance)
    wanted = [(a, b, 1.0) for a in LENGTHSCALES for b in NOISES]
    names = ("lengthscale_auto_loc", "noise_auto_loc", "variance_auto_loc")
    np.testing.assert_allclose([[one[name] for name in names] for one in tried], wanted, rtol=1e-10)
    # Neither a loss that is no number nor a step that leaves the finite is one.
    found = {name: value / start[name] for name, value in engine.get_params(best).items()}
    np.testing.assert_allclose([np.ravel(found[name])[0] for name in names], wanted[6], rtol=1e-10)
    assert best.optim_state[0] == 0
    assert bool(jnp.all(best.rng_key == state.rng_key))
    assert best_start(engine, feed, state, lambda *_: (1, state, np.asarray([5.0]), True)) is state


@pytest.mark.long
def test_directions_are_those_of_the_logarithms_whatever_the_sites_are():
    def other(X, y):
        shift = numpyro.sample("shift", dist.Normal(0.3, 1.0))  # logarithm of a lengthscale
        ratio = numpyro.sample("ratio", dist.LogNormal(0.5, 1.0))  # of variances, signal over noise
        variance = numpyro.sample("variance", dist.LogNormal(0.2, 1.0))
        numpyro.sample("unread", dist.LogNormal(0.0, 1.0))
        kernel = ngp.kernels.RBF(variance, jnp.exp(shift)) + 2 * ngp.kernels.Matern32(variance, 3 * jnp.exp(2 * shift))
        ngp.gp_regression("y", kernel, X, noise_variance=variance / ratio, obs=y)

    engine = svi(AutoDelta(other), of=other)
    state, feed = state_of(engine, X, Y)
    names = movable(engine, state)
    assert names == ["shift_auto_loc", "ratio_auto_loc", "variance_auto_loc", "unread_auto_loc"]
    found = directions(engine, feed, state, names)
    # Columns in the order of the names of a dictionary: ratio, shift, unread, variance. Logarithms that grow once and
    # twice with the shift are nearest to 1 both at 3/5.
    np.testing.assert_allclose(found, [[0, 0.6, 0, 0], [-2, 0, 0, 0]], atol=1e-10)


@pytest.mark.parametrize(
    "guide",
    [
        AutoDelta(model, init_loc_fn=init_to_value(values={"noise": 0.1})),
        AutoNormal(model, init_loc_fn=partial(lambda site: init_to_median(site))),
        ngp.AutoGP(model, rest=lambda model: AutoDelta(model, init_loc_fn=init_to_value(values={"noise": 0.1}))),
        lambda X, y: numpyro.sample("lengthscale", dist.Delta(numpyro.param("lengthscale_auto_loc", 1.0))),
    ],
    ids=["value", "function", "rest", "of one's own"],
)
def test_starts_that_are_named_stay(guide):
    if hasattr(guide, "prototype_trace"):
        numpyro.handlers.seed(guide, 0)(X, Y)
    engine = svi(guide)
    free = {f"{name}_auto_loc": 0.0 for name in ("lengthscale", "noise", "variance")}
    state = SVIState(engine.optim.init(free), None, KEY)
    assert movable(engine, state) == []


@pytest.mark.long
def test_parts_of_a_list_are_asked_each_for_itself():
    guide = AutoGuideList(model)
    guide.append(AutoDelta(numpyro.handlers.block(model, hide=["noise"]), prefix="one"))
    given = init_to_value(values={"noise": 0.1})
    guide.append(AutoNormal(numpyro.handlers.block(model, expose=["noise"]), prefix="two", init_loc_fn=given))
    engine = svi(guide)
    state = engine.init(KEY, X, Y)
    assert movable(engine, state) == ["lengthscale_one_loc", "variance_one_loc"]


@pytest.mark.long
def test_values_of_a_process_are_not_searched_for():
    def latent(X, y):
        noise = numpyro.sample("noise", dist.LogNormal(-1.0, 1.0))
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), X[:3])
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)

    for guide in (ngp.AutoGP(latent), AutoNormal(latent)):
        engine = svi(guide, of=latent)
        assert movable(engine, engine.init(KEY, X, Y)) == []

    def fixed(X, y):
        noise = numpyro.sample("noise", dist.LogNormal(-1.0, 1.0))
        ngp.gp_regression("y", ngp.kernels.RBF(1.0, 0.5), X, noise_variance=noise**2, obs=y)

    engine = svi(AutoDelta(fixed), of=fixed)
    state, feed = state_of(engine, X, Y)
    assert directions(engine, feed, state, movable(engine, state)) is None  # there is no lengthscale to be found


@pytest.mark.long
def test_minibatches_of_rows_with_neighbours_have_the_same_directions():
    """Their own ``lengthscale``, by which neighbours were found, is no parameter."""

    def local(near, y):
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
        noise = numpyro.sample("noise", dist.LogNormal(-1.0, 1.0))
        with numpyro.plate("data", near.size, subsample_size=5) as idx:
            ngp.gp_regression("y", ngp.kernels.RBF(1.0, lengthscale), near[idx], noise_variance=noise**2, obs=y)

    engine = svi(AutoDelta(local), of=local)
    near = ngp.neighbours(X, 3)
    feed = feed_of(engine, KEY, Arguments((near, jnp.asarray(Y)), {}))
    with feed.opened(feed.arrays()) as (args, kwargs):
        state = engine.init(KEY, *args, **kwargs)
    found = directions(engine, feed, state, movable(engine, state))
    np.testing.assert_allclose(found, np.eye(2), atol=1e-10)


@pytest.mark.long
def test_a_search_compiles_once_and_is_left_out_of_short_fits_and_those_that_go_on(monkeypatch):
    assert SHORT == 480  # 24 points are a twentieth of its steps
    monkeypatch.setattr(import_module("numpyro_gp.training.fit"), "SHORT", 4)  # the room has a function of this name
    guide, found = AutoDelta(model, init_loc_fn=init_to_median), []
    first = run(guide, 4, search=False)
    for most in (2, 0):
        with counted() as programs:
            found.append(run(guide, 4).losses)
        assert programs.count <= most
    assert found[0][0] < first.losses[0] - 50
    np.testing.assert_array_equal(*found)
    np.testing.assert_array_equal(run(guide, 3).losses, first.losses[:-1])
    np.testing.assert_array_equal(run(guide, 5, resume=first, search=True).losses[:-1], first.losses)
    given = numpyro.handlers.trace(numpyro.handlers.seed(guide, KEY)).get_trace(X, Y)
    given = {name: site["value"] for name, site in given.items() if site["type"] == "param"}
    named = [run(guide, steps, init_params=given, search=True).losses[0] for steps in (3, 4)]
    assert named[0] == named[1] > found[0][0] + 50


def test_a_bound_rises_or_has_arrived():
    noise = RNG.normal(size=LOOK_STEPS)
    assert not still_rises(100 + noise, LOOK_STEPS)
    assert still_rises(100 + noise - 0.02 * np.arange(LOOK_STEPS), LOOK_STEPS)
    assert still_rises(100 + noise[: LOOK_STEPS // 2], LOOK_STEPS)  # of so few steps nobody can say
