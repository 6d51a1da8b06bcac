"""The basis of an additive process: one small factorisation for each component (mathematics.md section 6.1).

Components whose kernels have one form, on whatever columns, and as many inducing points are one batch: the program of
fifty of them is hardly larger than that of two.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import block_diag
from jaxtyping import Float

from numpyro_gp.arrays import Array, value_type
from numpyro_gp.beliefs.basis import AbstractBasis, Basis, Frame, batch_of_bases, numbered, over_batch, spread
from numpyro_gp.beliefs.members import Stacks, alike, picked
from numpyro_gp.checks import check_points, fail, is_known
from numpyro_gp.kernels import Kernel
from numpyro_gp.kernels.functionals import OfFunctionals
from numpyro_gp.kernels.members import KernelBatches, at_columns, batch_shape, form_and_columns


def slices(sizes: Sequence[int]) -> tuple[slice, ...]:
    """Where parts of these sizes stand, one after the other."""
    ends = accumulate(sizes)
    return tuple(slice(end - size, end) for end, size in zip(ends, sizes, strict=True))


@value_type(static=("members", "columns"))
class Group:
    """Components whose kernels have one form and as many hyper-parameters and inducing points: one batch of bases.

    Attributes
    ----------
    members : tuple of int
        Numbers of the components.
    columns : tuple of tuple of int
        Columns of the inputs that each reads. Empty for a single component, which is given all.
    basis : Basis
        That of the forms and their columns, with an axis for the members on the left of its leaves, inside of those of
        plates. The basis as it is for a single component.
    """

    members: tuple[int, ...]
    columns: tuple[tuple[int, ...], ...]
    basis: Basis

    @classmethod
    def build(
        cls,
        members: tuple[int, ...],
        kernels: Sequence[Kernel] | Mapping[int, Kernel],
        inducing: Sequence[Array],
        jitter: float | None,
    ) -> "Group":
        """Factorise the Gram matrices of the components together."""
        if len(members) == 1:
            return cls(members, (), batch_of_bases(kernels[members[0]], inducing[members[0]], jitter))
        chosen, points = [kernels[c] for c in members], [inducing[c] for c in members]
        pairs = [form_and_columns(kernel, tuple(range(points[0].shape[-1]))) for kernel in chosen]
        plates, columns = batch_shape(chosen[0]), tuple(read for _, read in pairs)
        forms = jax.tree.map(lambda *leaves: jnp.stack(leaves, len(plates)), *[form for form, _ in pairs])
        return cls.of_forms(members, columns, forms, points, jitter, plates)

    @classmethod
    def of_forms(
        cls,
        members: tuple[int, ...],
        columns: tuple[tuple[int, ...], ...],
        forms: Kernel,
        points: Sequence[Array],
        jitter: float | None,
        plates: tuple[int, ...] = (),
    ) -> "Group":
        """Factorise those of forms that are one batch, inside of the axes ``own`` of plates."""
        # The columns of the inducing inputs that each reads; where all are known, one constant of a program.
        if points[0].ndim == 2 and all(array is points[0] for array in points):
            read = _columns_read(points[0], columns)
        elif points[0].ndim == 2 and all(map(is_known, points)):
            each = [np.asarray(array)[:, list(at)] for array, at in zip(points, columns, strict=True)]
            read = jnp.asarray(np.stack(each), points[0].dtype)
        else:
            stacked, at = jnp.stack(points, -3), jnp.asarray(np.asarray(columns)[:, None])
            at = at[(None,) * (stacked.ndim - 3)]
            read = jnp.take_along_axis(stacked, at, -1, mode="promise_in_bounds")
        build = jax.vmap(lambda kernel, at: Basis.build(kernel, at, jitter))
        return cls(members, columns, over_batch(build, forms, read, plates, axes=3))

    @property
    def lead(self) -> tuple[int, ...]:
        """Axes of plates."""
        return self.basis.factor.shape[: -2 - bool(self.columns)]

    def each(self, function: Callable[[Basis, Array], Array], X: Float[Array, "N D"]) -> Float[Array, " C *rest"]:
        """A function of each basis and of the columns of ``X`` that it reads."""
        if not self.columns:
            return function(self.basis, X)[None]
        return jax.vmap(function)(self.basis, _columns_read(X, self.columns))

    def matrix(self, X: Float[Array, "N D"]) -> Float[Array, "N N"]:
        """The sum of ``k_c(X, X)``, one after the other, so that only one is held at a time."""
        if not self.columns:
            return self.basis.matrix(X)

        def add(total: Array, component: tuple[Basis, Array]) -> tuple[Array, None]:
            return total + component[0].matrix(component[1]), None

        rows = _columns_read(X, self.columns)
        start = jnp.zeros((X.shape[0], X.shape[0]), jnp.result_type(self.basis.dtype, X))
        return lax.scan(add, start, (self.basis, rows))[0]

    def parts(self, inducing: Sequence[Array]) -> dict[int, Basis]:
        """The basis of each component, over all columns, by its number."""
        if not self.columns:
            return {self.members[0]: self.basis}
        bases = {}
        for place, (number, read) in enumerate(zip(self.members, self.columns, strict=True)):
            basis = jax.tree.map(lambda leaf, at=place: lax.index_in_dim(leaf, at, len(self.lead), False), self.basis)
            bases[number] = replace(basis, kernel=at_columns(basis.kernel, read), inducing=inducing[number])
        return bases


def _columns_read(X: Float[Array, "N D"], columns: tuple[tuple[int, ...], ...]) -> Float[Array, "C N A"]:
    """The columns of the inputs that each component reads."""
    return jnp.swapaxes(picked(X.T, np.asarray(columns)), -1, -2)


def _kind(kernel: Kernel, inducing: Array) -> Hashable:
    """Equal for components that are one batch: of one form, with hyper-parameters and inducing inputs of one shape."""
    if isinstance(kernel, OfFunctionals):  # whose rows are no columns to choose from
        return object()
    leaves, structure = jax.tree.flatten(form_and_columns(kernel, tuple(range(inducing.shape[-1])))[0])
    return structure, tuple(map(jax.typeof, (inducing, *leaves)))


@value_type(static=("names",))
class AdditiveBasis(AbstractBasis):
    """The inducing points of an additive site: components with independent priors, stacked in component order.

    Features are stacked, ``A = [A_1; ...; A_C]``; prior variances and covariances are summed. To a belief
    over all whitened values this basis looks like that of a single process.

    Attributes
    ----------
    names : tuple of str
        Names of the components, in order.
    inducing : tuple of Array (M_c, D)
        Inducing inputs of each, in the same order.
    groups : tuple of Group
        Their bases, in batches of those that are alike.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> kernels = {"a": ngp.kernels.RBF(1.0, 0.5).on(0), "b": ngp.kernels.RBF(1.0, 0.5).on(1)}
    >>> Z = jnp.array([[0.0, 0.0], [1.0, 1.0]])
    >>> basis = ngp.beliefs.AdditiveBasis.build(kernels, {"a": Z, "b": Z}, None)
    >>> basis.names, basis.sizes, basis.size
    (('a', 'b'), (2, 2), 4)
    """

    names: tuple[str, ...]
    inducing: tuple[Array, ...]
    groups: tuple[Group, ...]

    @classmethod
    def build(
        cls, kernels: Mapping[str, Kernel], inducing: Mapping[str, Array], jitter: float | None = None
    ) -> "AdditiveBasis":
        """Factorise the Gram matrix of each component: ``sum_c M_c^3``, never ``M^3``.

        Where kernels are batches, or inducing inputs several sets, all leaves have their axes on the left.
        """
        points, groups = [inducing[name] for name in kernels], []
        if isinstance(kernels, KernelBatches):
            number = {name: at for at, name in enumerate(kernels.names)}
            members = [tuple(number[name] for name in batch.names) for batch in kernels.batches]
            # The batches as they are, unless inducing inputs of one differ in shape.
            if all(points[c].ndim == 2 and points[c].shape == points[some[0]].shape for some in members for c in some):
                groups = [
                    Group.of_forms(some, batch.columns, batch.form, [points[c] for c in some], jitter)
                    if batch.columns
                    else Group.build(some, {some[0]: batch.form}, points, jitter)
                    for some, batch in zip(members, kernels.batches, strict=True)
                ]
        if not groups:
            each = list(kernels.values())
            groups = [Group.build(some, each, points, jitter) for some in alike(map(_kind, each, points))]
        whole = np.broadcast_shapes(*[group.lead for group in groups])
        spread_points = tuple(spread(array, array.shape[:-2], whole) for array in points)
        return cls(tuple(kernels), spread_points, tuple(spread(group, group.lead, whole) for group in groups))

    @property
    def parts(self) -> tuple[Basis, ...]:
        """The basis of each component, in order."""
        bases = {number: part for group in self.groups for number, part in group.parts(self.inducing).items()}
        return tuple(bases[number] for number in range(len(self.names)))

    @property
    def lead(self) -> tuple[int, ...]:
        """Axes of a batch on the left of all leaves."""
        return self.groups[0].lead

    @property
    def size(self) -> int:
        return sum(self.sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of inducing points of each component."""
        return tuple(points.shape[-2] for points in self.inducing)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where the whitened values of each component stand."""
        return slices(self.sizes)

    @property
    def dtype(self) -> np.dtype:
        return jnp.result_type(*[group.basis.dtype for group in self.groups])

    @property
    def stacks(self) -> Stacks:
        """Components by groups."""
        return Stacks(self.sizes, tuple(group.members for group in self.groups))

    def _each(self, function: Callable[[Basis, Array], Array], X: Float[Array, "N D"]) -> list[Array]:
        is_lifted = isinstance(self.groups[0].basis.kernel, OfFunctionals)
        rows = X if is_lifted else check_points("X", X, self.inducing[0].shape[-1])
        return [group.each(function, rows) for group in self.groups]

    def blocks(self, X: Float[Array, "N D"]) -> tuple[Array, ...]:
        """Features of each component, ``(M_c, N)``."""
        return tuple(self.stacks.unstacked(self._each(Basis.features, X)))

    def diagonals(self, X: Float[Array, "N D"]) -> Float[Array, "C N"]:
        """Prior variances of each component."""
        return self.stacks.in_order(self._each(Basis.diagonal, X))

    def features(self, X: Float[Array, "N D"]) -> Float[Array, "M N"]:
        return self.stacks.together(self._each(Basis.features, X))

    def frame(self) -> Frame:
        """Those of the components as blocks. The mean function of the sum is of no component: ``level`` is zero."""
        return Frame(*(block_diag(*blocks) for blocks in zip(*[part.frame() for part in self.parts], strict=True)))

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return jnp.sum(jnp.concatenate(self._each(Basis.diagonal, X)), axis=0)

    def matrix(self, X: Float[Array, "N D"]) -> Float[Array, "N N"]:
        first, *rest = [group.matrix(X) for group in self.groups]
        return sum(rest, first)

    def white(self) -> tuple["AdditiveBasis", Array]:
        labels = numbered(self.size, self.inducing[0])
        labels_of_parts = [labels[at] for at in self.slices]
        bases = [part.white_at(at) for part, at in zip(self.parts, labels_of_parts, strict=True)]
        groups = tuple(Group((number,), (), basis) for number, basis in enumerate(bases))
        return AdditiveBasis(self.names, tuple(labels_of_parts), groups), labels

    def component(self, name: str) -> int:
        """Position of a component."""
        if name not in self.names:
            fail("component", f"one of {list(self.names)}", repr(name), "Check the spelling.")
        return self.names.index(name)
