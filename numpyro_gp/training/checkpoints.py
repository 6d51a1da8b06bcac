"""Files of a run: the state of an engine and its losses, written whole and read back bit for bit."""

import dataclasses
import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, is_key
from numpyro_gp.checks import fail
from numpyro_gp.posterior.posterior import Posterior
from numpyro_gp.posterior.sources import of_guide
from numpyro_gp.primitives.inducing import Inducing
from numpyro_gp.programs.files import read_whole, write_whole


class SetUp(NamedTuple):
    """What a fit began with: its kind of posterior, "svi" or "stein", its model, and its guide or Stein engine.

    ``inducing`` and ``given`` are those of `Posterior`.
    """

    kind: str
    model: Any
    guide: Any
    inducing: Inducing
    given: dict[str, object] | None


@dataclasses.dataclass(frozen=True, eq=False)
class FitResult:
    """What `fit` returns: parameters, the loss of every step, and the state to continue from.

    It unpacks, ``params, losses, state = result``, and is a pytree; JAX's functions of trees leave its set-up out.

    Attributes
    ----------
    params : dict
        Constrained parameters by name, and mutable state, such as running averages: for `Posterior.from_svi`.
    losses : Array (steps,)
    state
        The engine's own state, for ``resume=``.
    rows : array (steps,) of integers or None
        Rows of the batch of each step, where ``batches=`` were given, for ``resume=``.
    set_up
        Model and guide, or engine, as they were in the fit: for `posterior`.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> result = ngp.FitResult({"noise": 0.1}, jnp.zeros(100), None)
    >>> result.losses.shape
    (100,)
    """

    params: dict[str, Any]
    losses: Array
    state: Any
    rows: np.ndarray | None = None
    set_up: SetUp | None = dataclasses.field(default=None, repr=False)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.params, self.losses, self.state))

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]

    def _replace(self, **changes: Any) -> "FitResult":
        return dataclasses.replace(self, **changes)

    def __reduce__(self) -> tuple[object, ...]:
        set_up = self.set_up
        try:
            pickle.dumps(set_up)
        except (pickle.PicklingError, AttributeError, TypeError):  # a lambda, a local function, Optax's optimisers
            set_up = None
        return FitResult, (*self, self.rows, set_up)

    def posterior(self) -> Posterior:
        """The posterior of this fit: `Posterior.from_svi` or `Posterior.from_stein` of its model, guide or engine.

        Examples
        --------
        >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> def model(X, y=None):
        ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.array([[0.0], [1.0]]))
        ...     with numpyro.plate("data", len(X)):
        ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
        >>> result = ngp.fit(jax.random.key(0), model, 5, X, X[:, 0], progress=False)
        >>> result.posterior().predict(jax.random.key(1), X).mean.shape
        (5,)
        """
        if self.set_up is None:
            required = "a result with the model and the guide of its fit, as ngp.fit returns it of an SVI or SteinVI"
            got = "one of another engine, or without them: they do not pickle, or it went through a function of trees"
            fail("the result", required, got, "Pass them: Posterior.from_svi(model, guide, result.params).")
        kind, model, guide, inducing, given = self.set_up
        if kind == "stein":
            return Posterior.from_stein(model, guide, self.params)
        return Posterior(model, kind, of_guide(guide, self.params), inducing=inducing, given=given)


jax.tree_util.register_pytree_node(
    FitResult,
    lambda result: ((*result, result.rows), None),
    lambda _, children: FitResult(*children),
)


class Position(NamedTuple):
    """How far a run has come: the state and the losses that led to it. Replaced as a whole, so never half new."""

    state: Any
    chunks: tuple[np.ndarray, ...]
    rows: np.ndarray | None = None  # of the batches before the first step of this run

    @property
    def losses(self) -> np.ndarray:
        return np.concatenate(self.chunks) if self.chunks else np.zeros(0)

    @property
    def steps(self) -> int:
        return sum(len(chunk) for chunk in self.chunks)

    def after(self, state: object, losses: np.ndarray) -> "Position":
        """The position after some more steps."""
        chunks = self.chunks
        while chunks and len(chunks[-1]) <= len(losses):  # few pieces, and none is copied often
            losses, chunks = np.concatenate([chunks[-1], losses]), chunks[:-1]
        return Position(state, (*chunks, losses))


def check_checkpoint(checkpoint: Any, resume: Any) -> Path | None:
    """The path to write to; refuse one that cannot be written, or that would overwrite another run."""
    if not isinstance(resume, (bool, FitResult)) and not Path(resume).is_file():
        cure = "Check the path, or pass resume=True with checkpoint=."
        fail("resume", "an existing checkpoint file", repr(str(resume)), cure)
    if checkpoint is None:
        if resume is True:
            fail("checkpoint", "a path when resume=True", "None", "Pass checkpoint='fit.npz'.")
        return None
    path = Path(checkpoint)
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        cure = "Create the folder first: os.makedirs(folder)."
        fail("checkpoint", "a file in a folder that exists and can be written", repr(str(path)), cure)
    if resume is True or not path.exists():
        return path
    if isinstance(resume, (bool, FitResult)) or not path.samefile(resume):
        cure = "Pass resume=True to continue it, or another path, or delete the file."
        fail("checkpoint", "a new file", f"the existing {str(path)!r}", cure)
    return path


def describe(engine: object, state: object) -> dict[str, list]:
    """Names, types and shapes of all parameters and of all leaves of the state."""

    def entries(tree: object) -> list:
        leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
        return [[jax.tree_util.keystr(path), str(leaf.dtype), list(leaf.shape)] for path, leaf in leaves]

    params = jax.tree.map(jnp.asarray, engine.get_params(state))
    return {"parameter": entries(params), "state": entries(state)}


def write_checkpoint(path: Path, engine: object, position: Position, rows: np.ndarray | None = None) -> None:
    """Write leaves, losses and their description, and the rows of the batches of a stream."""
    leaves = jax.device_get([jax.random.key_data(x) if is_key(x) else x for x in jax.tree.leaves(position.state)])
    entries = {f"leaf_{number}": np.asarray(leaf) for number, leaf in enumerate(leaves)}
    description = np.asarray(json.dumps(describe(engine, position.state)))
    entries |= {} if rows is None else {"rows": rows}
    write_whole(path, description=description, losses=position.losses, **entries)


def check_same(argument: str, saved: dict[str, list], here: dict[str, list]) -> None:
    """Refuse a state that belongs to another model, guide, optimiser or kind of key."""
    for kind in ("parameter", "state"):
        old, new = ({name: f"{dtype}{tuple(shape)}" for name, dtype, shape in entry[kind]} for entry in (saved, here))
        pairs = {name: (old.get(name, "absent"), new.get(name, "absent")) for name in (*new, *old)}
        if differences := [f"{kind} {n} is {a} there and {b} here" for n, (a, b) in pairs.items() if a != b]:
            cure = "Resume with the same model, guide, optimiser, data sizes, precision and kind of key."
            fail(argument, "the state of this same problem", "; ".join(differences[:3]), cure)


def starting_position(engine: object, state: object, path: Path | None, resume: object) -> Position:
    """Where to start: the initial state, or the state and losses to be resumed."""
    if isinstance(resume, FitResult):
        # A state that is one array may have gone through NumPy.
        kinds = {None if jax.tree_util.all_leaves([one]) else type(one) for one in (resume.state, state)}
        if len(kinds) > 1:
            required = f"a result with a state of this engine, a {type(state).__name__}"
            got = f"one with a {type(resume.state).__name__}"
            fail("resume", required, got, "Pass the whole result of fit, of the same kind of engine.", TypeError)
        check_same("resume", describe(engine, resume.state), describe(engine, state))
        return Position(resume.state, (np.asarray(resume.losses),), resume.rows)
    source = path if resume is True else None if resume is False else Path(resume)
    if source is None or not source.exists():
        return Position(state, ())

    def decode(stored: dict[str, np.ndarray]) -> tuple:
        saved = json.loads(str(stored["description"]))
        leaves = [stored[f"leaf_{number}"] for number in range(len(saved["state"]))]
        return saved, stored["losses"], leaves, stored.get("rows")

    cure = "Delete it, or pass the path of another one."
    saved, losses, leaves, rows = read_whole(source, "resume", "a checkpoint written by fit", cure, decode)
    check_same("resume", saved, describe(engine, state))
    template, tree = jax.tree.flatten(state)
    restored: list[Array] = []
    for own, leaf in zip(leaves, template, strict=True):
        if is_key(leaf):
            restored.append(jax.random.wrap_key_data(jnp.asarray(own), impl=jax.random.key_impl(leaf)))
        else:  # NumPy forgets the name of bfloat16
            restored.append(jnp.asarray(own if own.dtype == leaf.dtype else own.view(leaf.dtype)))
    return Position(jax.tree.unflatten(tree, restored), (losses,), rows)
