"""``E log(1 + e^f)`` of wide normal ``f``, whose turn the nodes of Gauss-Hermite straddle (mathematics.md section 7.2).

The slope of ``log(1 + e^f)`` is the logistic distribution function, and this is a mixture of normal ones: of standard
deviation ``2 k``, with ``k`` from Kolmogorov's distribution (Andrews and Mallows 1974). Under each of them the
expectation is closed. The Gauss rule of that distribution, of twelve nodes, is right to 2e-10 from a variance of 1 on.
"""

import math
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from numpyro_gp.arrays import Array
from numpyro_gp.likelihoods.links import normal_cdf

ROOT_2PI_INVERSE = 1 / math.sqrt(2 * math.pi)
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


def softplus_moments(mean: Any, variance: Any, xp: ModuleType = jnp) -> tuple[Any, Any, Any]:
    """``E log(1 + e^f)`` of wide ``f ~ N(mean, variance)``, both of one shape, and its first two slopes in ``mean``.

    Variances from `WIDE` on, in NumPy or JAX, ``xp``. Half of the second slope is that in the variance.
    """
    rule = (np.array(one).reshape(-1, *[1] * mean.ndim) for one in (SPREADS, SHARES))
    spreads, shares = (xp.asarray(one, mean.dtype) for one in rule)
    spread = xp.sqrt(spreads**2 + variance[None])
    side = xp.where(mean > 0, -mean, mean)[None]  # the small one: nothing cancels
    z = side / spread
    below, density = normal_cdf(z), xp.exp(-0.5 * z * z) * ROOT_2PI_INVERSE
    small = xp.sum(shares * (spread * density + side * below), axis=0)
    tail = xp.sum(shares * below, axis=0)
    value = xp.maximum(mean, 0) + xp.maximum(small, 0)
    return value, xp.where(mean > 0, 1 - tail, tail), xp.sum(shares * (density / spread), axis=0)


@jax.custom_jvp
def expected_softplus(mean: Float[Array, "*batch"], variance: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """The value of `softplus_moments`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_gp.likelihoods.softplus import expected_softplus
    >>> round(float(expected_softplus(jnp.array(0.0), jnp.array(9.0))), 4)   # SciPy: 1.3941
    1.3941
    """
    return softplus_moments(mean, variance)[0]


@expected_softplus.defjvp
def _expected_softplus_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    _, slope, curvature = softplus_moments(*primals)
    return expected_softplus(*primals), slope * tangents[0] + 0.5 * curvature * tangents[1]
