"""Names of axes, and the decorator that makes immutable values out of dataclasses.

Shapes are written with these letters everywhere in the library (mathematics.md section 1.1):

====== ======================================================================
letter axis
====== ======================================================================
N      data (or any evaluation points)
M      inducing points
D      inputs
P      outputs of one Gaussian process
G      members of a plate of groups, each with a process of its own
C      latent functions of one likelihood, or components of an additive model
K      importance samples
S      posterior draws
====== ======================================================================

They stand in annotations: ``Float[Array, "M N"]``, a leading ``*batch`` for any axes on the left. The
tests check them while the code runs; what a user passes is judged by `numpyro_gp.checks` alone.

Words with one meaning: *scale* and *noise* are standard deviations, a *factor* is a lower Cholesky
factor, *whitened* values have a standard normal prior, a *bound* is maximised and a *loss* minimised.
Not used: amplitude, sigma, length, ell, likelihood variance.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast, dataclass_transform

import jax
import jax.extend.core
import numpy as np
from jax.tree_util import Partial, PyTreeDef, all_leaves
from jax.typing import ArrayLike as ArrayLike  # for the annotations of all other files

# What traces now, to be compared for equality. Its place is jax.extend.core, and jax.core before jax 0.10, which warns
# of a look for it there in jax 0.10 and 0.11.
_place = jax.extend.core if hasattr(jax.extend.core, "get_opaque_trace_state") else jax.core
current_trace: Callable[[], object] = _place.get_opaque_trace_state
EAGER = current_trace()  # where nothing is traced, as when this file is imported

Array = jax.Array
Shape = tuple[int, ...]
T = TypeVar("T")
# Arrays of JAX or of NumPy, whichever come.
Values = TypeVar("Values", jax.Array, np.ndarray)
Function = TypeVar("Function", bound=Callable[..., Any])
Model = Callable[..., object]  # what NumPyro traces; a guide is one too

# ``Converted[Held, Given]``: a field whose ``__post_init__`` makes what is held out of what the constructor is given.
if TYPE_CHECKING:
    Held = TypeVar("Held", covariant=True)
    Given = TypeVar("Given", contravariant=True)

    class Converted(Generic[Held, Given]):
        """For type checkers, a descriptor; when the code runs, the type that the constructor takes."""

        def __get__(self, value: object, owner: type | None = None) -> Held: ...
        def __set__(self, value: object, item: Given) -> None: ...

else:

    class Converted:
        """The second of two types."""

        def __class_getitem__(cls, types: tuple[object, object]) -> object:
            return types[1]


ArrayField = Converted[Array, ArrayLike]


@dataclass_transform(frozen_default=True, eq_default=False)
def value_type(*, static: tuple[str, ...] = ()) -> Callable[[type[T]], type[T]]:
    """Make a class an immutable dataclass and a pytree.

    Fields named in ``static`` become part of the tree's structure (they must be hashable), all
    others are its children. A value with no children equals another with the same fields, so that
    a function compiled for the one serves the other. Checks belong in ``__post_init__``: it runs
    when a user builds the value and *not* when JAX rebuilds it, because inside ``vmap`` or ``scan``
    the leaves have other shapes, or are no arrays at all.

    Examples
    --------
    >>> @value_type(static=("name",))
    ... class Point:
    ...     position: ArrayLike
    ...     name: str = "p"
    >>> jax.tree.leaves(Point(1.5))
    [1.5]
    """

    def decorate(cls: type[T]) -> type[T]:
        data_class: Any = dataclasses.dataclass(frozen=True, eq=False)(cls)
        names = [field.name for field in dataclasses.fields(data_class)]
        unknown = set(static) - set(names)
        assert not unknown, f"{cls.__name__} has no fields {unknown}"
        children = [name for name in names if name not in static]
        keys = [jax.tree_util.GetAttrKey(name) for name in children]

        def flatten(value: object) -> tuple[list[Any], tuple[Any, ...]]:
            leaves = [getattr(value, name) for name in children]
            return leaves, tuple(getattr(value, name) for name in static)

        def flatten_with_keys(value: object) -> tuple[list[Any], tuple[Any, ...]]:
            leaves, structure = flatten(value)
            return list(zip(keys, leaves, strict=True)), structure

        def unflatten(structure: tuple[object, ...], leaves: Any) -> Any:
            value = object.__new__(data_class)
            store(value, **dict(zip(children, leaves, strict=True)), **dict(zip(static, structure, strict=True)))
            return value

        if not children:
            data_class.__eq__ = lambda self, other: type(self) is type(other) and flatten(self) == flatten(other)
            data_class.__hash__ = lambda self: hash((data_class, flatten(self)[1]))
        jax.tree_util.register_pytree_with_keys(data_class, flatten_with_keys, unflatten, flatten)
        return cast("type[T]", data_class)

    return decorate


def same_fields(cls: type[T]) -> type[T]:
    """`value_type` of a class whose fields are those of its base, where type checkers find them."""
    return value_type()(cls)


def store(value: object, /, **fields: object) -> None:
    """Set fields of an immutable value while it is made: ``__post_init__`` keeps what its checks return."""
    for name, item in fields.items():
        object.__setattr__(value, name, item)


def as_pytree(function: Function) -> Function:
    """A callable with its arrays as leaves: one that is a pytree stays as it is, a plain function is structure."""
    return cast("Function", Partial(function)) if all_leaves([function]) else function


def over_axes(function: Function, count: int, in_axes: Any = 0) -> Function:
    """A function mapped by ``vmap`` over the first ``count`` axes of its arguments, which results then have too."""
    for _ in range(count):
        function = jax.vmap(function, in_axes=in_axes)
    return function


def is_array(leaf: object) -> bool:
    """Whether a value is a JAX array, or a NumPy array of numbers that can become one."""
    return isinstance(leaf, jax.Array) or (isinstance(leaf, np.ndarray) and leaf.dtype.kind not in "OSUMm")


def is_key(leaf: object) -> bool:
    """Whether a leaf is a new-style random key."""
    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def widened(numbers: Array) -> Array:
    """Whole numbers in four bytes or more: those of one byte, as codes of categories, wrap beside larger ones."""
    return numbers if numbers.dtype.itemsize >= 4 else numbers.astype(int)


def on_device(array: np.ndarray | Array) -> Array:
    """What ``jnp.asarray`` makes of an array; from jax 0.11 on that compiles a program for every shape it meets."""
    return array if isinstance(array, jax.Array) else jax.device_put(array)


def on_devices(tree: object) -> Any:
    """A tree with JAX arrays for its NumPy arrays of numbers."""
    return jax.tree.map(lambda leaf: on_device(leaf) if is_array(leaf) else leaf, tree)


ARRAY = object()


class Merge(NamedTuple):
    """Puts arrays back into a tree: its structure, and its leaves where they are no arrays."""

    structure: PyTreeDef
    fixed: tuple[object, ...]

    def __call__(self, arrays: Iterable[object]) -> Any:
        rest = iter(arrays)
        return jax.tree.unflatten(self.structure, [next(rest) if leaf is ARRAY else leaf for leaf in self.fixed])


def split_arrays(tree: object) -> tuple[list[Array], Merge]:
    """The arrays of a tree, and the function that puts them back among the rest, which stays fixed."""
    leaves, structure = jax.tree.flatten(tree)
    arrays = [on_device(leaf) for leaf in leaves if is_array(leaf)]
    return arrays, Merge(structure, tuple(ARRAY if is_array(leaf) else leaf for leaf in leaves))


@contextmanager
def set_to(variable: ContextVar[Any], value: T) -> Iterator[T]:
    """Inside of the block a context variable has this value."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)
