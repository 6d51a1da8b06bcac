"""What a fit says about its processes as normal pseudo-data: to keep, to add, and to recall in later models."""

import os
from collections.abc import Mapping
from typing import Any, SupportsInt

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, ArrayField, store, value_type
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.basis import AbstractBasis, BatchBasis
from numpyro_gp.beliefs.conditional import Conditional
from numpyro_gp.beliefs.coupled import check_mean
from numpyro_gp.beliefs.gaussian_data import positive_part, pseudo_data_of
from numpyro_gp.beliefs.members import each_member
from numpyro_gp.beliefs.neighbours.pseudo_rows import PseudoRows
from numpyro_gp.checks import check_points, check_symmetric, fail, known
from numpyro_gp.guides import AutoGP
from numpyro_gp.guides.auto import OnBases
from numpyro_gp.guides.fit_registry import as_fitted, inducing_of_sites, is_same
from numpyro_gp.kernels.functionals import Functional, OfFunctionals, as_functionals
from numpyro_gp.posterior.sources import check_precision, check_whitened_precision, shapes_of_params
from numpyro_gp.posterior.storage import read_arrays, write_arrays
from numpyro_gp.sites import role, unwrap


@value_type()
class PseudoData:
    """What the data of a fit said about a process, at its inducing inputs: `ngp.recall` observes it in later models.

    ``exp(shift . u - u^T precision u / 2)`` over the values ``u`` there, mean function included. Those of fits to
    different data, with the same inducing inputs, add: ``past_1 + past_2``.

    Parameters
    ----------
    inducing : Array (M, D), or dict of them by component
    shift : Array (M,) or (P, M)
    precision : Array (M, M) or (P, M, M)
        Symmetric, positive semi-definite. Both have the axes of plates on their left.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> past = ngp.PseudoData(jnp.array([[0.0], [1.0]]), jnp.array([2.0, -1.0]), jnp.eye(2))
    >>> [float(value) for value in (past + past).shift]
    [4.0, -2.0]
    """

    inducing: Any
    shift: ArrayField
    precision: ArrayField

    def __post_init__(self) -> None:
        shift, points = check_mean("shift", self.shift), self.inducing
        if isinstance(points, Mapping):
            points = {name: _check_inducing(f"inducing[{name!r}]", one) for name, one in points.items()}
        else:
            points = _check_inducing("inducing", points)
        store(self, inducing=points, shift=shift, precision=check_symmetric("precision", self.precision, shift.shape))

    def __add__(self, other: "PseudoData") -> "PseudoData":
        """What both say: of fits to different data, with the same inducing inputs."""
        if not isinstance(other, PseudoData):
            return NotImplemented
        own, theirs = jax.tree.flatten(self.inducing), jax.tree.flatten(other.inducing)
        is_like = own[1] == theirs[1] and self.shift.shape == other.shift.shape
        for one, two in zip(own[0], theirs[0]):
            first, second = known(one), known(two)
            is_like &= one.shape == two.shape and (first is None or second is None or np.array_equal(first, second))
        if not is_like:
            cure = "Fit all parts with one set of inducing inputs, or recall both in a model, one after the other."
            fail("the pseudo-data", "at the same inducing inputs", "others", cure)
        return PseudoData(self.inducing, self.shift + other.shift, self.precision + other.precision)

    @property
    def columns(self) -> int | None:
        """Columns of the inputs where inducing inputs are functionals, of which files hold rows; else None."""
        given = self.inducing.values() if isinstance(self.inducing, Mapping) else [self.inducing]
        return next((one.columns for one in given if isinstance(one, Functional)), None)

    @property
    def arrays(self) -> dict[str, object]:
        """All of it as arrays by name, functionals by their rows."""
        rows = jax.tree.map(
            lambda one: getattr(one, "rows", one), self.inducing, is_leaf=lambda one: not isinstance(one, Mapping)
        )
        return {"inducing": rows, "shift": self.shift, "precision": self.precision}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, object], columns: SupportsInt | None) -> "PseudoData":
        """What `arrays` and `columns` are of."""
        count = None if columns is None else int(columns)
        inducing = jax.tree.map(lambda rows: as_functionals(rows, count), arrays["inducing"])
        return cls(inducing, arrays["shift"], arrays["precision"])

    def save(self, path: str | os.PathLike) -> None:
        """Write it to one file, which `load` reads."""
        write_arrays(path, "pseudo-data", {"past": self.arrays}, self.columns)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "PseudoData":
        """The pseudo-data of a file."""
        kind, groups, columns = read_arrays(path)
        if kind != "pseudo-data":
            fail("path", "a file of pseudo-data", f"one of kind {kind!r}", "Read a posterior with Posterior.load.")
        return cls.of_arrays(groups["past"], columns)


def _check_inducing(argument: str, points: object) -> object:
    return points if isinstance(points, Functional) else check_points(argument, points, leading=True)


def pseudo_data(guide: AutoGP, params: Mapping[str, object], *args: object, **kwargs: object) -> dict[str, PseudoData]:
    """What a fit learnt about each of its processes, without the data: see `ngp.recall`.

    A `Conditional` belief holds it. From others it is found at the medians of the hyper-parameters, as the pseudo-data
    that give the belief back (mathematics.md section 14.2). Where a fit knows less than the prior, as one with a
    Student t may, they say nothing: negative eigenvalues become zero.

    Parameters
    ----------
    guide : AutoGP
    params : dict
        ``result.params`` of the fit.
    *args, **kwargs
        Arguments of the model. They may be left out for `Conditional` beliefs at fixed inducing inputs.

    Returns
    -------
    dict of PseudoData
        By the names of the sites.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp, optax
    >>> from numpyro.infer import SVI, Trace_ELBO
    >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), X)
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    >>> guide = ngp.AutoGP(model, {"f": ngp.guides.conditional()})
    >>> svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(0.01), 1.0), Trace_ELBO())
    >>> fit = ngp.fit(jax.random.key(0), svi, 1, X, X[:, 0], progress=False)
    >>> ngp.pseudo_data(guide, fit.params)["f"].shift.shape
    (5,)
    """
    check_precision(dict(params))
    begun = as_fitted(guide, params)
    guide, inducing = begun.guide, begun.inducing
    beliefs = guide.beliefs(params)
    if by_rows := sorted(name for name, belief in beliefs.items() if isinstance(belief, PseudoRows)):
        cure = "Fit ngp.gp at inducing inputs, which a later model recalls for the price of M rows."
        fail("the guide", "one of processes with inducing inputs", f"{by_rows} by neighbours", cure)
    if any(isinstance(belief, Conditional) and belief.noise_site for belief in beliefs.values()):
        at_medians = guide.rest.median(params)
        beliefs = {name: belief.given(at_medians) for name, belief in beliefs.items()}
    # The bases of the set-up, where all that is asked of them is inducing inputs that no parameter moves, and these are
    # those of the fit: its first run by NumPyro's own SVI may have been another.
    found: dict[str, AbstractBasis] = {}
    if not (args or kwargs) and all(isinstance(belief, Conditional) for belief in beliefs.values()):
        sites = {name: site for name, site in guide.prototype_trace.items() if role(site) == "gp"}
        bases = {name: unwrap(site["fn"]).basis_of(beliefs[name]) for name, site in sites.items()}
        is_held = set(params) <= set(shapes_of_params(guide)) and is_same(inducing, inducing_of_sites(sites))
        if is_held and not any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(bases)):
            found = bases
    if not found:
        # In their places stand beliefs that read the mean function too.
        readers = {n: Conditional(jnp.zeros(b.shape), jnp.zeros((*b.shape, b.shape[-1]))) for n, b in beliefs.items()}
        at = OnBases(guide.model, readers, params, args, kwargs)
        medians = guide.median(params, *args, **kwargs)
        found = {name: basis for name, (_, basis) in at.bases(medians).items()}
    for name, basis in found.items():
        if not isinstance(beliefs[name], Conditional):
            check_whitened_precision(beliefs[name], name, basis.dtype)
    return {
        name: PseudoData(_inducing_of_basis(basis), *_as_pseudo_data(beliefs[name], basis))
        for name, basis in found.items()
    }


def _as_pseudo_data(belief: AbstractBelief, basis: AbstractBasis) -> tuple[Array, Array]:
    """Shift and precision of a belief, or of each member."""
    if isinstance(belief, Conditional):
        shift, precision = belief.said
        return shift, positive_part(precision)
    if isinstance(basis, BatchBasis):
        return each_member(_as_pseudo_data, belief, basis)
    mean, factor = belief.whitened(basis)
    return pseudo_data_of(mean, factor, basis.frame().factor, basis.level)


def _inducing_of_basis(basis: object) -> Any:
    """Inducing inputs, by component of an additive process."""
    if isinstance(basis, BatchBasis):
        return _inducing_of_basis(basis.members)
    if isinstance(basis, AdditiveBasis):
        return dict(zip(basis.names, map(_inducing_of_basis, basis.parts), strict=True))
    columns = basis.kernel.columns if isinstance(basis.kernel, OfFunctionals) else None
    return as_functionals(basis.inducing, columns)
