"""Ramps, and which parameters take which step."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro.infer import SVI

import numpyro_gp as ngp
from numpyro_gp.optim import check_natural_steps


@pytest.mark.parametrize("kind", ["log", "linear"])
def test_ramps(kind):
    schedule = ngp.optim.ramp(1e-4, 0.1, 100, kind)
    np.testing.assert_allclose([schedule(0), schedule(100), schedule(1000)], [1e-4, 0.1, 0.1], rtol=1e-6)
    middle = 1e-4 * np.sqrt(1000.0) if kind == "log" else 0.5 * (1e-4 + 0.1)
    np.testing.assert_allclose(schedule(50), middle, rtol=1e-6)


@pytest.mark.parametrize("step", [0.5, ngp.optim.ramp(0.5, 0.6, 10, "linear"), optax.constant_schedule(0.5)])
def test_natural_parameters_take_plain_steps_and_the_rest_its_own(step):
    """A user's own parameter called natural_rate too: a plain step would move it, whatever its optimiser says."""
    params = {"f/ngp:natural_shift": jnp.ones(2), "a/f/ngp:natural_precision": jnp.eye(2), "noise": jnp.ones(())}
    params |= {"natural_rate": jnp.ones(()), "site/natural_shift": jnp.ones(2)}
    optimiser = ngp.optim.natural_gradient(optax.sgd(0.01), step)
    updates, _ = optimiser.update(params, optimiser.init(params), params)
    np.testing.assert_allclose(updates["f/ngp:natural_shift"], -0.5)
    np.testing.assert_allclose(updates["a/f/ngp:natural_precision"], -0.5 * np.eye(2))
    for name in ("noise", "natural_rate", "site/natural_shift"):
        np.testing.assert_allclose(updates[name], -0.01)


def steps_taken(gradients, params=None):
    """Sizes of the default steps for a list of gradients of one belief, beside ``params``."""
    optimiser = ngp.optim.natural_gradient(optax.sgd(0.01))
    start = {"f/ngp:natural_shift": jnp.zeros(len(gradients[0])), **(params or {})}
    state, taken = optimiser.init(start), []
    for gradient in gradients:
        given = {name: jnp.asarray(gradient) if "shift" in name else jnp.ones(()) for name in start}
        updates, state = optimiser.update(given, state, start)
        moved = np.asarray(updates["f/ngp:natural_shift"])
        taken.append(-(moved @ gradient) / (gradient @ gradient))
    return np.array(taken)


@pytest.mark.long
def test_default_steps_shrink_as_t_grows_where_gradients_are_noise():
    """Noise: directions that are orthogonal to each other, for which the recursion is one of numbers."""
    taken, square, memory, wanted = steps_taken(np.eye(400)[:200] * 1e3), 0.0, 1.0, []
    for _ in range(200):
        square = (1 - 1 / memory) ** 2 * square + 1 / memory**2
        wanted.append(min(0.1, square))
        memory += 1 - wanted[-1] * memory
    np.testing.assert_allclose(taken, wanted, rtol=1e-5)
    # ``step = a / t``, ``memory = b t`` solve the recursion for ``b^2 - 3 b + 1 = 0`` and ``a = (1 - b) / b``.
    assert abs(200 * taken[-1] - (1 + np.sqrt(5)) / 2) < 0.1


@pytest.mark.long
def test_default_steps_stay_where_gradients_agree_or_other_parameters_train():
    """A decaying gradient of one direction is no noise; and beliefs must follow hyper-parameters."""
    decaying = [0.9**t * np.array([3.0, -4.0]) for t in range(60)]
    np.testing.assert_allclose(steps_taken(decaying), 0.1, rtol=1e-6)
    np.testing.assert_allclose(steps_taken(np.eye(40), {"noise": jnp.ones(())}), 0.1, rtol=1e-6)
    check_natural_steps(SVI(None, None, ngp.optim.natural_gradient(optax.sgd(0.1)), None).optim, {**BELIEF})


BELIEF = {"f/ngp:natural_shift": jnp.ones(3), "f/ngp:natural_precision": jnp.eye(3)}


NATURAL = {"f/ngp:natural_shift": jnp.ones(3), "f/ngp:natural_precision": jnp.eye(3), "noise": jnp.ones(())}
PLAIN = ngp.optim.natural_gradient(optax.adam(0.1), 0.5)


@pytest.mark.parametrize(
    "optimiser",
    [PLAIN, optax.chain(optax.clip_by_global_norm(1.0), PLAIN), optax.sgd(0.1), optax.sgd(0.1, momentum=0.9),
     optax.MultiSteps(PLAIN, 2).gradient_transformation(), numpyro.optim.SGD(0.1), numpyro.optim.Momentum(0.1, 0.9)],
)  # fmt: skip
def test_plain_steps_on_natural_parameters_are_accepted(optimiser):
    check_natural_steps(SVI(None, None, optimiser, None).optim, NATURAL)


@pytest.mark.parametrize(
    "optimiser",
    [optax.adam(0.1), optax.rmsprop(0.1), optax.lion(0.1), numpyro.optim.Adam(0.1), numpyro.optim.ClippedAdam(0.1),
     optax.adam(optax.linear_schedule(0.0, 0.1, 10)), optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.1)),
     optax.sign_sgd(0.1), optax.fromage(0.1)],  # these keep nothing
)  # fmt: skip
def test_optimisers_that_end_in_nan_on_natural_parameters_are_refused(optimiser):
    with pytest.raises(
        ValueError, match=r"optimiser must be one that takes plain gradient steps.*f/ngp:natural_shift.*Wrap it"
    ):
        check_natural_steps(SVI(None, None, optimiser, None).optim, NATURAL)
    check_natural_steps(SVI(None, None, optimiser, None).optim, {"f/mean": jnp.ones(3), "natural_rate": jnp.ones(3)})


def test_rows_take_long_steps_and_all_of_them_are_declared_in_a_minibatch():
    near = ngp.neighbours(np.linspace(0, 1, 12)[:, None], 3, others=True)

    def model():
        with numpyro.plate("data", 12, subsample_size=4) as idx:
            ngp.gp("f", ngp.kernels.RBF(1.0, 0.3), near[idx])

    guide = ngp.AutoGP(model, {"f": ngp.guides.pseudo_data()})
    with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as trace:
        assert guide()["f"].shape == (4,)
    params = {name: site["value"] for name, site in trace.items() if site["type"] == "param"}
    assert {name: value.shape for name, value in params.items()} == {
        "f/ngp:natural_row_shift": (12,),
        "f/ngp:natural_row_precision": (12,),
    }
    others = {"g/ngp:natural_shift": jnp.zeros(2), "lengthscale": jnp.zeros(())}
    for more, step in (({}, None), (others, 0.1)):
        optimiser, every = ngp.optim.natural_gradient(optax.sgd(0.5)), params | more
        moves, _ = optimiser.update(jax.tree.map(jnp.ones_like, every), optimiser.init(every), every)
        np.testing.assert_allclose(moves["f/ngp:natural_row_shift"], -0.7, rtol=1e-6)
        if step:
            np.testing.assert_allclose(moves["g/ngp:natural_shift"], -step, rtol=1e-6)
    optimiser = ngp.optim.natural_gradient(optax.sgd(0.5), 0.3)
    moves, _ = optimiser.update(params, optimiser.init(params), params)
    np.testing.assert_array_equal(moves["f/ngp:natural_row_shift"], 0)
