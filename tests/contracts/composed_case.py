"""A composed model with data, a guide and parameters: what the relations of the net are asked of."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import numpyro_gp as ngp
from numpyro_gp.sites import role
from tests.contracts.compositions import (
    GROUPS,
    POINTS,
    ROWS,
    Composed,
    Composition,
    inputs_of,
    recipe_of,
    targets_of,
)

KEY = jax.random.key(3)
START = {"variance": 0.8, "noise": 0.6, "scale": 0.9}  # of the hyper-parameters


class Case:
    """The model of a composition with data, a guide, and parameters away from their start."""

    def __init__(self, c: Composition) -> None:
        self.c, self.rng, self.model = c, np.random.default_rng(c.seed), Composed(c)
        self.data = self.made_up(ROWS)
        self.data["Z"] = self.data["X"] if c.is_full else inputs_of(self.rng, POINTS)
        self.others = inputs_of(self.rng, 3)
        self.guide = self.new_guide()

    def made_up(self, count: int) -> dict[str, Any]:
        """Arguments of the model, data included."""
        c, rng = self.c, self.rng
        shape = (count, 2) if self.model.is_wide else (count,)
        y = targets_of(c, rng, shape)
        X = (
            inputs_of(rng, count * GROUPS).reshape(count, GROUPS, -1)
            if c.process == "own rows"
            else inputs_of(rng, count)
        )
        if c.process == "outputs" and c.likelihood != "softmax":
            y = targets_of(c, rng, (count, GROUPS))
        group = rng.permutation(np.arange(count) % GROUPS)
        beyond, seen, offset = rng.random(count) < 0.4, rng.random(count) < 0.7, 0.5 * rng.normal(size=count)
        lower = (y if y.ndim == 1 else y[:, 0]) - 0.4
        if c.likelihood == "interval" and y.ndim == 2:
            y = np.stack([y[:, 0]] * 2, axis=1)
        rows = {"group": group, "beyond": beyond, "seen": seen, "offset": offset, "lower": lower}
        return {"X": X, "table": rows, "y": y}

    @cached_property
    def params(self) -> dict[str, np.ndarray]:
        """Constrained, away from the start; guide and model are looked at and not run."""
        found: dict[str, Any] = {}

        def look() -> None:
            with handlers.seed(rng_seed=1), handlers.trace() as trace:
                values = self.guide(**arrays(self.data))
            with handlers.block(), handlers.seed(rng_seed=1), handlers.substitute(data=values), handlers.trace() as own:
                self.model(**arrays(self.data))
            found.update({n: s for n, s in {**trace, **own}.items() if s["type"] == "param"})

        jax.eval_shape(look)
        values = {name: value_of(site, self.rng, self.c.rest == "delta") for name, site in found.items()}
        return values | {name: np.asarray(self.others) for name in found if name.endswith("inducing_mean")}

    def new_guide(self, model: Any = None, recipe: Any = None, scope: str = "") -> Any:
        rest = {"rest": narrow} if self.c.rest == "normal" else {}
        recipe = recipe or recipe_of(self.c.belief, self.others)
        return ngp.AutoGP(model or self.model, {f"{scope}f": recipe}, **rest)

    @cached_property
    def noise(self) -> dict[str, np.ndarray]:
        """A value for all that is drawn in a step, and whether it has rows."""
        with handlers.seed(rng_seed=1), handlers.substitute(data=arrays(self.params)):
            sites = handlers.trace(self.guide).get_trace(**arrays(self.data)).values()
        return {
            site["name"]: np.asarray(site["value"]) for site in sites if role(site) in ("noise", "function", "latent")
        }

    @cached_property
    def loss(self) -> Callable[..., Any]:
        return program(self.model, self.guide, with_gradient=True)

    def bound(self, rows: np.ndarray | None = None, params: Any = None) -> tuple[Any, Any]:
        """The loss and its gradient; of a minibatch of these rows."""
        params, drawn = self.params if params is None else params, dict(self.noise)
        batch = None if rows is None else len(rows)
        if rows is not None:
            drawn = {name: value[rows] if len(value) == ROWS else value for name, value in drawn.items()}
            drawn["data"] = rows
        return self.loss(*arrays((params, drawn, self.data)), batch)

    @cached_property
    def whole(self) -> tuple[Any, Any]:
        return self.bound()

    @cached_property
    def value(self) -> Any:
        """The loss, by its own program where the gradient was not asked for."""
        if "whole" in vars(self):
            return self.whole[0]
        value = program(self.model, self.guide)(*arrays((self.params, self.noise, self.data)), None)
        assert np.isfinite(value)
        return value

    @property
    def posterior(self) -> ngp.Posterior:
        return ngp.Posterior.from_svi(self.model, self.guide, arrays(self.params))

    @cached_property
    def chain(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Three draws of the hyper-parameters, and of the whitened values of one process or of a sum of two."""
        rng, sampled = np.random.default_rng(self.c.seed + 3), self.c.hyper == "sampled"
        draws = {name: start * np.exp(0.3 * sampled * rng.normal(size=3)) for name, start in START.items()}
        return draws, rng.normal(size=(3, len(self.data["Z"]) * (1 + (self.c.process == "additive"))))

    @property
    def sampled(self) -> dict[str, Any]:
        draws, v = self.chain
        return arrays({"f": v, **(draws if self.c.hyper == "sampled" else {})})

    @cached_property
    def new(self) -> dict[str, Any]:
        return {**{name: x for name, x in self.made_up(ROWS).items() if name != "y"}, "Z": self.data["Z"]}

    def svi(self, guide: Any) -> SVI:
        """An engine with an optimiser that suits the recipes."""
        adam, is_natural = optax.adam(0.05), any("natural_" in name for name in self.params)
        optimiser = ngp.optim.natural_gradient(adam, 0.3) if is_natural else adam
        return SVI(self.model, guide, optimiser, Trace_ELBO())

    @property
    def of_belief(self) -> dict[str, np.ndarray]:
        """Parameters of the belief of the process, by the names of its recipe."""
        own = {name: value for name, value in self.params.items() if name.startswith("f/")}
        return {name.removeprefix("f/").removeprefix("ngp:"): value for name, value in own.items()}

    def hyper(self, params: Any = None) -> dict[str, Any]:
        """Hyper-parameters at points."""
        params = self.params if params is None else params
        names = {"sampled": "{}_auto_loc", "param": "{}", "fixed": ""}[self.c.hyper]
        return {name: params.get(names.format(name), start) for name, start in START.items()}


def narrow(model: Any) -> AutoNormal:
    """An autoguide whose draws differ little."""
    return AutoNormal(model, init_scale=0.05)


def arrays(tree: Any) -> Any:
    """Arrays of the precision at hand."""
    return jax.tree.map(jnp.asarray, tree)


def program(
    model: Any, guide: Any, with_gradient: bool = False, objective: Any = Trace_ELBO, is_batched: bool = False
) -> Callable[..., Any]:
    """The loss, and its gradient in the parameters, as one program; or the loss of parameters on an axis."""

    def loss(params: Any, drawn: Any, data: Any, batch: int | None) -> Any:
        own, other = (handlers.substitute(part, data=drawn) for part in (model, guide))
        options = {} if batch is None else {"batch": batch}
        return objective().loss(KEY, params, own, other, **data, **options)

    if is_batched:
        return jax.jit(jax.vmap(lambda params, drawn, data: loss(params, drawn, data, None), in_axes=(0, None, None)))
    return jax.jit(jax.value_and_grad(loss) if with_gradient else loss, static_argnums=3)


def value_of(site: Any, rng: np.random.Generator, is_point: bool) -> np.ndarray:
    """A value of a parameter of such a shape and name; hyper-parameters of an autoguide are logarithms but for points."""
    name, shape = site["name"].split("/")[-1], site["value"].shape
    step = 0.2 * rng.normal(size=shape)
    if (own := name.removesuffix("_auto_loc")) in START:
        return START[own] * np.exp(step) if is_point or own == name else np.log(START[own]) + step
    if name.endswith("_auto_scale"):
        return 0.05 * np.exp(step)
    is_matrix = len(shape) > 1 and shape[-1] == shape[-2]
    if name.endswith(("precision", "precision_first", "precision_second")):
        return step @ np.swapaxes(step, -1, -2) + np.eye(shape[-1])
    if "tril" in name or "factor" in name:
        return np.tril(step) + (np.eye(shape[-1]) if is_matrix else 0.0)
    return 0.8 * np.exp(step) if "scale" in name else step


def same(left: Any, right: Any, rtol: float = 1e-7, atol: float = 1e-8) -> None:
    """Equality up to rounding of two trees."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(left))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), left, right)
