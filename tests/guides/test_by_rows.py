"""The recipe of pseudo-data by rows, and the steps that they take where nobody says how long."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax

import numpyro_gp as ngp


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
