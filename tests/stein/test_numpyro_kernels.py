"""NumPyro's own kernels, against NumPyro's own step and against ours."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib import einstein
from numpyro.infer import init_to_uniform

from numpyro_gp.stein import SVGD

KEY = jax.random.key(3)


@pytest.mark.long
@pytest.mark.parametrize(
    "theirs",
    [einstein.RBFKernel(), einstein.IMQKernel(), einstein.RBFKernel(mode="vector"), einstein.GraphicalKernel()],
    ids=["rbf", "imq", "vector", "graphical"],
)
def test_numpyros_kernels_are_taken(theirs):
    """A step of ours is NumPyro's own where its target is right: no constrained site, no minibatch."""

    def model():
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        numpyro.sample("b", dist.Normal(jnp.stack([a, -a]), 0.5).to_event(1))

    def step(engine):
        start = {"guide_kwargs": {"init_loc_fn": init_to_uniform(radius=1.0)}}
        svgd = engine(model, numpyro.optim.SGD(0.1), theirs, 4, **start)
        state = svgd.init(KEY)
        return svgd.get_params(state), svgd.get_params(svgd.update(state)[0])

    (before, after), (start, end) = step(SVGD), step(einstein.SVGD)
    for name, value in end.items():
        np.testing.assert_array_equal(before[name], start[name])
        np.testing.assert_allclose(after[name], value, rtol=1e-9)
        assert np.abs(np.asarray(value) - np.asarray(start[name])).max() > 1e-3
