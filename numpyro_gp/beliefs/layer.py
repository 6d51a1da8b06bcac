"""The belief of decoupled deep processes: mean and covariance on two sets of points (mathematics.md section 5.1)."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, store, value_type
from numpyro_gp.beliefs.basis import Basis
from numpyro_gp.beliefs.decoupled import OfParts, Parts, check_coefficients, check_sampled_rows, inverse_covariance
from numpyro_gp.checks import check_choice, check_points, check_triangle, fail
from numpyro_gp.kernels.jitter import least_factor, unit_of
from numpyro_gp.linalg import add_to_diagonal, factorise_from, matmul


@value_type(static=("mean",))
class DecoupledLayer(OfParts):
    """A layer of a deep process with its own points for the mean (Havasi et al. 2018).

    Its mean stands on ``Z_mean``, its covariance on the site's inducing inputs, ``Z_b`` in mathematics.md
    section 5.1. The KL is exactly that of the process, whether the two sets of points are disjoint or overlap
    (mathematics.md section 5.2); with the jitter in ``L_a`` the ``gp`` and ``gpcent`` forms are an upper bound of it.
    With P outputs of one kernel ``O(P N (M_a + M_b^2) + M_a^3 + M_b^3)``: they share both factorisations. For
    ``mean="cb"`` ``P M_a^2`` takes the place of ``M_a^3``, or ``P J M_a`` with J numbers in ``columns``. With
    ``B_tril`` every output has a factorisation of its own, ``P M_b^3``.

    Parameters
    ----------
    Z_mean : Array (M_a, D)
    mean_parameter : Array (M_a,) or (P, M_a)
        ``mean="gpcent"``: ``m'`` with mean ``K_Xa L_a^-T m'`` and norm ``|m'|^2``, the best conditioned; ``"gp"``:
        ``m`` with ``K_Xa L_a^-T L_a^-1 m`` and ``|L_a^-1 m|^2``; ``"cb"``: ``a`` with ``K_Xa a`` and ``a^T K_aa a``.
    mean : {"gpcent", "gp", "cb"}
    scale_tril : Array (M_b, M_b) or (P, M_b, M_b), optional
        Whitened lower factor ``C`` of the covariance (mathematics.md section 3.1).
    columns : Array (J,) of integers, optional
        Rows that estimate ``a^T K_aa a`` of ``mean="cb"``, drawn without replacement and independently of the data
        batch. None is exact.
    B_tril : Array, same shape, optional
        Lower triangular ``L_B`` of the covariance (mathematics.md section 4.2). Exactly one of the two is given.

    Notes
    -----
    Its whitened mean depends on the kernel, so the array this value looks like holds zeros.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> Z_mean = jnp.linspace(0.0, 1.0, 5)[:, None]
    >>> ngp.beliefs.DecoupledLayer(Z_mean, jnp.zeros((2, 5)), scale_tril=jnp.stack([jnp.eye(3)] * 2)).shape
    (2, 3)
    """

    Z_mean: ArrayField
    mean_parameter: ArrayField
    mean: str = "gpcent"
    scale_tril: Array | None = None
    B_tril: Array | None = None
    columns: Array | None = None
    shared: Parts | None = None
    points = "Z_mean"

    def __post_init__(self) -> None:
        check_choice("mean", self.mean, ("gpcent", "gp", "cb"))
        points = check_points("Z_mean", self.Z_mean)
        parameter = check_coefficients("mean_parameter", self.mean_parameter, "Z_mean", points)
        if (self.scale_tril is None) == (self.B_tril is None):
            got = "both" if self.B_tril is not None else "neither"
            cure = "Pass scale_tril alone: it is the usual choice."
            fail("scale_tril or B_tril", "given, exactly one of them", got, cure)
        name = "scale_tril" if self.B_tril is None else "B_tril"
        factor = check_triangle(name, getattr(self, name), (*parameter.shape[:-1], None), positive=name == "scale_tril")
        if self.columns is not None and self.mean != "cb":
            fail("columns", "left out but for mean='cb', whose norm is a sum over rows", "given", "Pass columns=None.")
        rows = check_sampled_rows(self.columns, points.shape[0])
        store(self, Z_mean=points, mean_parameter=parameter, columns=rows, **{name: factor})

    @property
    def whitened_mean(self) -> Float[Array, "*batch M"]:
        factor: Any = self.B_tril if self.scale_tril is None else self.scale_tril
        return jnp.zeros_like(factor[..., 0])

    def parts(self, site: Basis) -> Parts:
        check_points(f"Z_mean of the {type(self).__name__}", self.Z_mean, site.columns)
        parameter, norm = self.mean_parameter, None
        if self.mean != "cb":
            # L_a^-1, with the jitter of the covariance basis, or the least above it that factorises.
            gram, amount = site.kernel.matrix(self.Z_mean), jnp.mean(site.jitter)[None]
            unit = unit_of(gram, own=False)
            relative, factor = least_factor(gram, unit, (amount / unit)[0])
            raised = add_to_diagonal(gram, jnp.maximum(amount, relative[None] * unit))
            inverse = factorise_from(raised, factor)[1]
            white = parameter if self.mean == "gpcent" else matmul(parameter, inverse.T)
            parameter, norm = matmul(white, inverse), jnp.sum(white**2)
        covariance = None
        if self.B_tril is not None:
            covariance = inverse_covariance(site.kernel.matrix(site.inducing), self.B_tril)
        return Parts(parameter, norm, covariance)
