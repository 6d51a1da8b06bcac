"""Each datum left out by importance weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.criticism.evidence import gather
from numpyro_gp.rows.call import call_of
from tests.criticism import faults
from tests.criticism.faults import DRAWS, X, Z, posterior, y
from tests.criticism.test_evidence import KNOWN


@pytest.mark.long
def test_importance_weights_leave_a_datum_out():
    """Draws of whitened values at known hyper-parameters: nearer to the exact residuals than those of the whole fit."""
    constant = {name: np.full(DRAWS, value) for name, value in KNOWN.items()}
    call = call_of(faults.model, (X, y), {"Z": Z})
    seen = gather(posterior(**constant), jax.random.key(0), call, None).sites["y"]
    one = {name: jnp.asarray(value[:1]) for name, value in constant.items()}
    exact = ngp.Posterior.from_mcmc(faults.exact, one)
    wanted = gather(exact, jax.random.key(0), call_of(faults.exact, (X, y), {"Z": Z}), None).sites["y"].z
    plain = (seen.y - seen.level) / seen.spread
    assert np.sqrt(np.mean((seen.z - wanted) ** 2)) < 0.5 * np.sqrt(np.mean((plain - wanted) ** 2))
