"""``recall``: an earlier fit observed again, at the price of its inducing inputs (mathematics.md section 14.4)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.linalg import block_diag

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.base import AbstractBelief, Joint
from numpyro_gp.beliefs.basis import AbstractBasis
from numpyro_gp.checks import check_type, fail
from numpyro_gp.linalg import einsum, matmul
from numpyro_gp.primitives.gp import AdditiveGP
from numpyro_gp.primitives.lifted import lifted_at_rows
from numpyro_gp.primitives.opening import open_term
from numpyro_gp.primitives.process import GaussianProcess


class Recalled(dist.Unit):
    """``E_q log t(u)`` of pseudo-data: a term of the joint density that belongs to no datum."""


def recall(name: str, f: GaussianProcess, past: Any) -> None:
    """Go on learning: observe again what an earlier fit learnt, without its data.

    Adds ``E[shift . u - u^T precision u / 2]`` over the values ``u`` of ``f`` at the inducing inputs of ``past``, under
    the belief or the point at the site of ``f``. It stands for the data of that fit at the price of M rows, for any
    likelihood; kernel, hyper-parameters and inducing inputs of this model may be others (streaming sparse processes of
    Bui et al. 2017). It is as good as the earlier inducing inputs were, and knows the data where they lie alone.

    Parameters
    ----------
    name : str
        Name of the site.
    f : GaussianProcess
        What `gp` or `additive_gp` returned. In plates call it inside the same plates.
    past : PseudoData
        From `ngp.pseudo_data`, of a process with the same outputs and members.

    Returns
    -------
    None

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> past = ngp.PseudoData(jnp.array([[0.0], [1.0]]), jnp.array([2.0, -1.0]), 4.0 * jnp.eye(2))
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), jnp.linspace(0.0, 2.0, 5)[:, None])
    ...     ngp.recall("yesterday", f, past)
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    """
    check_type("f", f, GaussianProcess, "a process, as gp() returns it", "Pass f itself, not f(X).")
    # Mean, mean function included, and covariance of the values at the earlier inducing inputs.
    if isinstance(f, AdditiveGP):  # of all components, each at inputs of its own
        if not isinstance(past.inducing, dict) or set(past.inducing) != set(f.names):
            got = sorted(past.inducing) if isinstance(past.inducing, dict) else f"shape {jnp.shape(past.inducing)}"
            cure = "Recall it in a process of the same components."
            fail("past.inducing", f"one array for each of the components {list(f.names)}", got, cure)
        if f.plates.names:
            fail("f", "outside of plates", f"an additive process in {f.plates}", "Recall single additive processes.")
        read = [lifted_at_rows(f, past.inducing[name], False, f"past.inducing[{name!r}]") for name in f.names]
        pairs = [(lifted.basis.parts[c], rows) for c, (lifted, rows) in enumerate(read)]
        features = block_diag(*(part.features(rows) for part, rows in pairs))
        covariance = block_diag(*(part.matrix(rows) for part, rows in pairs)) - matmul(features.T, features)
        if isinstance(f.process, AbstractBelief):
            white, factor = f.process.whitened(f.basis)
            mean, spread = matmul(white, features), matmul(factor.T, features)
            covariance = covariance + matmul(spread.T, spread)
        else:
            mean = matmul(f.process.v, features)
    else:
        f, inputs = lifted_at_rows(f, past.inducing, argument="past.inducing")
        is_apart = f.outputs is not None and inputs.ndim > 2
        if is_apart and (f.plates.names or inputs.ndim > 3):
            cure = "Share the inducing inputs between the outputs."
            fail("past.inducing", "shared by the outputs of a process in plates", f"shape {inputs.shape}", cure)

        def joint(process: Any, basis: AbstractBasis, rows: Array) -> Joint:
            return jax.vmap(lambda points: process.joint(basis, points))(rows)

        mean, covariance = f.each(joint, inputs)
        mean = f.with_mean(mean, inputs)
        if is_apart:
            each = jnp.arange(inputs.shape[0])  # output p at the inputs of output p
            mean, covariance = mean[each, each], covariance[each, each]
    if mean.shape[-past.shift.ndim :] != past.shift.shape:
        required = f"about values of shape {mean.shape}: those of {f.name!r}, inducing inputs last"
        fail("past", required, f"a shift of shape {past.shift.shape}", "Recall it in a process of the same kind.")
    terms = einsum("...i,...i->...", past.shift, mean)
    terms = terms - 0.5 * einsum("...i,...ij,...j->...", mean, past.precision, mean)
    terms = terms - 0.5 * einsum("...ij,...ij->...", past.precision, covariance)
    terms = terms if f.outputs is None else jnp.sum(terms, axis=-1)
    open_term(name, Recalled(terms.reshape(f.plates.batch)), terms, f.name, f.plates)
