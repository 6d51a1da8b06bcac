"""``E log(1 + e^f)`` of wide normal ``f``, whose turn the nodes of Gauss-Hermite straddle (mathematics.md section 7.2).

The slope of ``log(1 + e^f)`` is the logistic distribution function, and this is a mixture of normal ones: of standard
deviation ``2 k``, with ``k`` from Kolmogorov's distribution (Andrews and Mallows 1974). Under each of them the
expectation is closed. The Gauss rule of that distribution, of twelve nodes, is right to 2e-10 from a variance of 1 on.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Float

from numpyro_gp.arrays import Array

# A latent variance up to which 20 nodes of Gauss-Hermite are right to 3e-11.
WIDE = 1.0
SPREADS = (
    0.7561870640390987, 0.9917260427381476, 1.2841560229713098, 1.6501253534708262, 2.0930132330354225,
    2.605122031247017, 3.1774432932871357, 3.806648241130592, 4.4959798112788825, 5.257454773968898,
    6.120502487659976, 7.1692633269822865,
)  # fmt: skip
SHARES = (
    0.005529480863865929, 0.07929388528780094, 0.24898081996498592, 0.31953474238516416, 0.22320481810870846,
    0.09508997127217998, 0.02451757836208047, 0.00357518512002595, 0.00026501139928229706, 8.423339129708647e-06,
    8.377669471458898e-08, 1.2008149897029592e-10,
)  # fmt: skip


@jax.custom_jvp
def expected_softplus(mean: Float[Array, "*batch"], variance: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """``E log(1 + e^f)`` for ``f ~ N(mean, variance)`` with variances from `WIDE` on.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_gp.likelihoods.softplus import expected_softplus
    >>> round(float(expected_softplus(jnp.array(0.0), jnp.array(9.0))), 4)   # SciPy: 1.3941
    1.3941
    """
    spread, below, density, shares = _parts(-jnp.abs(mean), variance)  # of the small side: nothing cancels
    small = jnp.sum(shares * (spread * density - jnp.abs(mean)[..., None] * below), axis=-1)
    return jnp.maximum(mean, 0) + jnp.maximum(small, 0)


def _parts(mean: Array, variance: Array) -> tuple[Array, Array, Array, Array]:
    """Standard deviations of the mixture, how much of each is below ``mean``, its density times them, and shares."""
    spreads, shares = (jnp.expand_dims(jnp.asarray(part, mean.dtype), range(mean.ndim)) for part in _rule())
    spread = jnp.sqrt(spreads**2 + variance[..., None])
    z = mean[..., None] / spread
    return spread, ndtr(z), jnp.exp(-0.5 * z**2) / np.sqrt(2 * np.pi).item(), shares


def _rule() -> tuple[np.ndarray, np.ndarray]:
    return np.array(SPREADS), np.array(SHARES)


@expected_softplus.defjvp
def _expected_softplus_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    spread, below, density, shares = _parts(*primals)
    of_mean, of_variance = jnp.sum(shares * below, axis=-1), 0.5 * jnp.sum(shares * density / spread, axis=-1)
    return expected_softplus(*primals), of_mean * tangents[0] + of_variance * tangents[1]


def wide_softplus(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The expectation of `expected_softplus` in NumPy, with its first two derivatives in the mean ``(N,)``."""
    from scipy.special import ndtr as below_normal  # not at import: only newer versions of NumPyro bring it

    spreads, shares = _rule()
    spread = np.sqrt(spreads[:, None] ** 2 + variance)
    z = mean / spread
    density, below = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi), below_normal(z)
    small = shares @ (spread * density - np.abs(mean) * below_normal(-np.abs(z)))
    return np.maximum(mean, 0) + small, shares @ below, shares @ (density / spread)
