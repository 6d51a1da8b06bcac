"""A process is one event: masks and scales over it are those of its members."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.funsor import config_enumerate, enum
from numpyro.contrib.funsor import log_density as enumerated_density
from numpyro.infer.util import log_density
from scipy import stats

import numpyro_gp as ngp

X = jnp.linspace(0.0, 1.0, 6)[:, None]
Y = jnp.sin(5 * X[:, 0])
ROWS = jnp.array([True, True, False, True, False, True])


def regression(around):
    with around:
        ngp.gp_regression("y", ngp.kernels.RBF(1.0, 0.7), X, 0.1, obs=Y)


def process(around):
    with around:
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.7), X[:3])
        with numpyro.plate("data", 6):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=Y)


@pytest.mark.parametrize(("model", "site"), [(regression, "y"), (process, "f")])
@pytest.mark.parametrize("handler", ["mask", "scale"])
def test_rows_over_a_process_are_refused(model, site, handler):
    """The evidence had counted once for each row that is seen: -60.4 for -15.1, and the hidden rows in it."""
    around = getattr(numpyro.handlers, handler)(**{handler: ROWS if handler == "mask" else 1.0 + ROWS})
    with pytest.raises(ValueError, match=rf"the {handler} over site '{site}' must be one number.*shape \(6,\)") as info:
        log_density(model, (around,), {}, {"f": jnp.ones(3)} if site == "f" else {})
    assert "leave rows without data out" in str(info.value)


def test_members_are_hidden_and_scaled_one_by_one():
    """And a mask of rows is seen inside of the expansion of a plate."""
    mask, scale = (lambda own: numpyro.handlers.mask(mask=own)), (lambda own: numpyro.handlers.scale(scale=own))

    def members(around, dim=-1, tiled=(3, 1)):
        with numpyro.plate("g", 3, dim=dim), around:
            shift = jnp.arange(3.0).reshape(-1, *[1] * (len(tiled) - 1))
            ngp.gp_regression("y", ngp.kernels.RBF(1.0, 0.7), X, 0.1, obs=jnp.tile(Y, tiled) + shift)

    each = [log_density(members, (mask(jnp.arange(3) == number),), {}, {})[0] for number in range(3)]
    whole = log_density(members, (mask(True),), {}, {})[0]
    np.testing.assert_allclose(sum(each), whole, rtol=1e-12)
    twice = log_density(members, (scale(jnp.array([1.0, 2.0, 1.0])),), {}, {})[0]
    np.testing.assert_allclose(twice, whole + each[1], rtol=1e-12)
    one = log_density(regression, (mask(True),), {}, {})[0]
    np.testing.assert_allclose(each[0], one, rtol=1e-12)
    half = log_density(regression, (scale(jnp.array([0.5])),), {}, {})[0]
    np.testing.assert_allclose(half, 0.5 * one, rtol=1e-12)
    message = r"the mask over site 'y' must be of the members of plate 'g' of 3, "
    with pytest.raises(ValueError, match=rf"{message}\(3,\)"):
        log_density(members, (mask(jnp.ones((6, 3), bool)),), {}, {})
    with pytest.raises(ValueError, match=rf"{message}\(3, 1\)"):
        log_density(members, (mask(ROWS), -2, (3, 1, 1)), {}, {})


def test_masks_of_enumerated_sites_choose_between_events():
    def model():
        z = numpyro.sample("z", dist.Bernoulli(0.3), infer={"enumerate": "parallel"})
        for name, value, noise in (("y", 1, 0.1), ("y2", 0, 0.2)):
            with numpyro.handlers.mask(mask=z == value):
                ngp.gp_regression(name, ngp.kernels.RBF(1.0, 0.7), X, noise, obs=Y)

    K = np.asarray(ngp.kernels.RBF(1.0, 0.7).matrix(X))
    terms = [
        np.log(p) + stats.multivariate_normal(np.zeros(6), K + noise * np.eye(6)).logpdf(Y)
        for p, noise in ((0.3, 0.1), (0.7, 0.2))
    ]
    found = enumerated_density(enum(config_enumerate(model), -2), (), {}, {})[0]
    np.testing.assert_allclose(found, np.logaddexp(*terms), rtol=1e-10)
