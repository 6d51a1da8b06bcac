"""A process by neighbours, as a user calls it: marginals at rows, each given what is nearest to it.

What it is given, `data`, has `at`, its moments at new rows: Gaussian data, pseudo-data, or values of the process.
"""

import functools
from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax

from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.checks import check_points, fail, is_known
from numpyro_gp.kernels.functionals import Functional
from numpyro_gp.kernels.varying import lengthscales
from numpyro_gp.neighbours.value import NeighbourRows, Neighbours, NewRows
from numpyro_gp.primitives.lines.value import Line
from numpyro_gp.primitives.opening import Plates, record_call
from numpyro_gp.sites import normal_of

# Neighbours of a new row where nobody says how many.
NEIGHBOURS = 256
# Distances that are held at a time where a program itself looks for neighbours.
TRACED_DISTANCES = 2**22


@value_type(static=("name", "columns"))
class LocalProcess:
    """A process by neighbours: call it at rows.

    `gp_regression` of `ngp.neighbours` returns one given its data, and `gp` one given pseudo-data or values of it.

    Attributes
    ----------
    name : str
        Name of the data site, or of its own.
    data : LocalData, or pseudo-data
    columns : int
        Number D of input columns.
    marginals : Normal or None
        Those of a latent process at the rows of its plate, ``(B,)``.
    cavity : Normal or None
        Those given the pseudo-data of all other rows: what is known of a row without its datum.
    """

    name: str
    data: Any
    columns: int
    marginals: dist.Distribution | None = None
    cavity: dist.Distribution | None = None
    plates = Plates()  # none: it is one process

    @property
    def noise(self) -> Array | None:
        """Noise variance of the data that it is given; None of a latent process."""
        return self.data.noise if self.marginals is None else None

    @property
    def is_point(self) -> bool:
        """Whether it is latent and known by whitened values, which are those of one choice of neighbours."""
        return self.marginals is not None and self.cavity is None

    def at_inducing(self, with_jitter: bool = False) -> dist.Distribution:  # noqa: ARG002
        """Marginals of a latent process at the rows of its plate: a Normal of batch shape ``(B,)``.

        Its jitter is white noise in its kernel, with or without ``with_jitter``.
        """
        if self.marginals is None:
            cure = "Call it at rows: f(X), or f(near.find(X, 256))."
            fail("the process", "one made by gp()", f"that of gp_regression {self.name!r}", cure, TypeError)
        normal = copy(self.marginals)
        normal.near_of = self
        return normal

    def __call__(self, X: NewRows | ArrayLike) -> dist.Distribution:
        """Marginals of the function at new rows, each given the data nearest to it: a Normal of batch shape ``(N,)``.

        Pass ``near.find(X, K)``, or an array for the nearest 256 of the data. Where that is traced, as in a layer of a
        compiled model, the program itself compares it with all rows of the data.
        """
        rows = new_rows_of(self.data.near, X)
        record_call(self, jnp.asarray(rows.inputs))
        mean, variance = self.data.at(rows)
        normal = normal_of(mean, jnp.sqrt(variance))
        normal.members_of = self.plates
        if self.marginals is None:
            normal.given_data_of = self.name
        elif self.cavity is not None:
            normal.pseudo_data_of = self.name
        return normal

    def units(self) -> tuple[Neighbours, Array | None]:
        """The neighbours it stands on, and the lengthscales of its kernel ``(D,)``, None where it has none."""
        return self.data.near, lengthscales(self.data.kernel, self.columns)

    @property
    def basis(self) -> NoReturn:
        """Refused: there are no inducing inputs that all rows depend on."""
        cure = "Ask for single rows, f(X), in a model, and after the fit posterior.function_draws(key, X_new, near, y)."
        fail(f"the process {self.name!r}", "one with a basis, for functions and joint draws", "one by neighbours", cure)

    def joint(self, *args: object, **kwargs: object) -> Any:  # noqa: ARG002
        """Refused, as `basis` is."""
        return self.basis

    sample_jointly = draw = function = joint


class SeenProcesses(NamedTuple):
    """Latent processes by neighbours and what data say of them: whose predictions at new rows are asked for.

    ``offset`` is that of the data, None without one.
    """

    name: str
    processes: tuple[LocalProcess, ...]
    several: bool
    likelihood: Any
    offset: Any

    def at(self, X: NewRows | ArrayLike) -> Any:
        """Marginals of the latent functions at new rows, as `observe` takes them."""
        latent = tuple(process(X) for process in self.processes)
        return latent if self.several else latent[0]

    def left_out(self) -> Any:
        """Marginals at the rows of the fit without what their own data said; None of functions that are known."""
        latent = tuple(process.cavity for process in self.processes)
        return None if None in latent else latent if self.several else latent[0]


def shortest(scales: Sequence[Array | None]) -> Array | None:
    """The shortest lengthscale of each column, where several processes stand on the same neighbours, as of a sum."""
    known = [scale for scale in scales if scale is not None]
    return functools.reduce(jnp.minimum, known) if known else None


def new_rows_of(near: Neighbours | Line, X: NewRows | ArrayLike) -> NewRows:
    """New rows with the nearest 256 of the data, unless they have theirs."""
    columns = int(near.inputs.shape[-1])
    if isinstance(X, NewRows):
        check_points("X", X.inputs, columns)
        return X
    if isinstance(X, (Neighbours, NeighbourRows, Functional)):
        cure = "Pass near.find(X, 256), or rows of inputs."
        cure = "Pass times. Of slopes pass line.find(t_new, slope=True)." if isinstance(near, Line) else cure
        fail("X", "new rows", f"a {type(X).__name__}", cure, TypeError)
    if isinstance(near, Line):
        return near.find(X)
    points = check_points("X", X, columns)
    if all(map(is_known, jax.tree.leaves((near, points)))):
        return near.find(points, NEIGHBOURS)
    # The program itself looks for them: ``O(N)`` for each row.
    scale = jnp.asarray(near.lengthscale)[None]
    rows = lax.stop_gradient(jnp.asarray(near.inputs) / scale)

    def numbers_of(point: Array) -> Array:
        apart = jnp.sum(jnp.square(rows - point[None] / scale), axis=1)
        return lax.top_k(-apart, min(NEIGHBOURS, near.size))[1]

    most = max(1, TRACED_DISTANCES // rows.size)
    return NewRows(points, lax.map(numbers_of, lax.stop_gradient(points), batch_size=most))
