"""``Posterior``: one object after the fit, whichever engine made it, and the predictions it gives."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.infer.autoguide import AutoDelta, AutoGuide

from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_count, check_key, fail
from numpyro_gp.chunks import predict_chunks
from numpyro_gp.guides.auto import AutoGP
from numpyro_gp.prediction import Prediction
from numpyro_gp.sites import Observation, role, unwrap

__all__ = ["Posterior"]

DEFAULT_DRAWS = 100
Draw = Callable[[Array, Array], dict[str, Any]]


class Posterior:
    """Posterior of a model: draws of its global sites, as points or beliefs, and predictions from them.

    Build it with `from_svi`, `from_mcmc` or `from_stein`. Sites inside the data plate (latent inputs,
    noise of function draws) belong to the training data and are drawn from their prior in predictions
    (math.md section 9.4).

    Attributes
    ----------
    model : callable
    kind : str
        The engine: "svi", "mcmc" or "stein".
    num_draws : int or None
        Number of stored draws; None where draws can be made at will.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        kind: str,
        draw: Draw,
        num_draws: int | None,
        *,
        deterministic: bool = False,
    ) -> None:
        self.model, self.kind, self.num_draws = model, kind, num_draws
        self._draw, self._deterministic = draw, deterministic

    @classmethod
    def from_svi(cls, model: Callable[..., Any], guide: Callable[..., Any], params: Mapping[str, Any]) -> "Posterior":
        """Posterior of a variational fit: ``params = svi.get_params(state)`` or ``result.params``."""
        if not isinstance(params, Mapping):
            fail("params", "a dictionary of parameters", f"a {type(params).__name__}", "Pass result.params.", TypeError)
        missing = isinstance(guide, AutoGuide) and guide.prototype_trace is None
        if missing:
            fail("guide", "the guide that was fitted", "one that has not been run", "Fit it first, or run svi.init.")
        params = dict(params)
        if isinstance(guide, AutoGP):
            draw: Draw = lambda key, index: guide.global_values(key, params)  # noqa: ARG005, E731
            deterministic = guide.rest is None or isinstance(guide.rest, AutoDelta)
            return cls(model, "svi", draw, None, deterministic=deterministic)
        if isinstance(guide, AutoGuide):
            draw = lambda key, index: guide.sample_posterior(key, params)  # noqa: ARG005, E731
            return cls(model, "svi", draw, None, deterministic=isinstance(guide, AutoDelta))
        posterior = cls(model, "svi", lambda key, index: {}, None)  # noqa: ARG005
        posterior._guide, posterior._params = guide, params
        return posterior

    @classmethod
    def from_mcmc(cls, model: Callable[..., Any], mcmc: Any) -> "Posterior":
        """Posterior from a run of NumPyro's ``MCMC`` (or a dictionary of draws with the draws on the first axis)."""
        samples = dict(mcmc) if isinstance(mcmc, Mapping) else mcmc.get_samples()
        if not samples:
            fail("mcmc", "a finished run with draws", "no draws", "Call mcmc.run first.")
        sizes = {name: jnp.shape(leaf)[0] for name, leaf in samples.items()}
        if len(set(sizes.values())) != 1:
            fail("mcmc", "draws with one common first axis", f"{sizes}", "Stack the chains: group_by_chain=False.")
        draw: Draw = lambda key, index: jax.tree.map(lambda leaf: leaf[index], samples)  # noqa: ARG005, E731
        posterior = cls(model, "mcmc", draw, next(iter(sizes.values())))
        posterior.samples = samples
        return posterior

    @classmethod
    def from_stein(cls, model: Callable[..., Any], svgd: Any, params_or_state: Any) -> "Posterior":
        """Posterior whose draws are the particles of `ngp.stein.SVGD`, equally weighted.

        ``params_or_state`` is ``result.params`` or ``result.state``. ``posterior.samples`` has the particles
        by site, the particle axis first. They are no chain: R-hat and effective sample sizes mean nothing here.
        """
        if not hasattr(svgd, "particles"):
            got = f"a {type(svgd).__name__}"
            fail(
                "svgd", "the ngp.stein.SVGD object that was run", got, "Pass the engine, then result.params.", TypeError
            )
        posterior = cls.from_mcmc(model, svgd.particles(params_or_state))
        posterior.kind = "stein"
        return posterior

    samples: dict[str, Any] | None = None
    _guide: Callable[..., Any] | None = None
    _params: dict[str, Any] | None = None

    def predict(
        self,
        key: Array,
        *args: Any,
        num_samples: int | None = None,
        chunk_size: int = 8192,
        rows: Sequence[str] | None = None,
        site: str | None = None,
        **kwargs: Any,
    ) -> Prediction:
        """Predict the data of the model called with these arguments and without its observations.

        Parameters
        ----------
        key : PRNG key
        *args, **kwargs
            Arguments of the model, with new inputs and no data.
        num_samples : int, optional
            Draws in the mixture; all stored draws, or 100 (1 where nothing is random).
        chunk_size : int
            Rows that are predicted at a time.
        rows : sequence of argument names, optional
            Arguments that have one row for each datum; the first argument of the model by default.
        site : str, optional
            Site to predict, where the model observes several.

        Returns
        -------
        Prediction
        """
        check_key("key", key)
        check_count("chunk_size", chunk_size)
        bound = _bind(self.model, args, kwargs)
        names = _row_names(bound, rows)
        _check_rows(bound, names)
        site, is_random = self._inspect(key, bound, site)
        draws = self._number_of_draws(num_samples, is_random)
        static = {name: value for name, value in bound.arguments.items() if not _is_data(value)}
        arrays = {name: value for name, value in bound.arguments.items() if _is_data(value)}
        order = jnp.arange(draws) if self.num_draws is None else _spread(draws, self.num_draws)
        row_free = {name: value for name, value in arrays.items() if name not in names}

        def one_draw(draw: tuple[Array, Array], part: tuple[dict[str, Array], Array]) -> Observation:
            call = inspect.BoundArguments(bound.signature, {**bound.arguments, **static, **row_free, **part[0]})
            return self._observation(*draw, part[1], call, site)

        rows_of = {name: jnp.asarray(arrays[name]) for name in names}
        chunks = predict_chunks(one_draw, (jax.random.split(key, draws), order), rows_of, chunk_size)
        return Prediction(chunks, chunks.sizes, key)

    # ------------------------------------------------------------------------------- pieces

    def values(self, key: Array, index: Array, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Values of the global sites for one draw."""
        if self._guide is None:
            return self._draw(key, index)
        with handlers.block(), handlers.seed(rng_seed=key), handlers.substitute(data=self._params):
            trace = handlers.trace(self._guide).get_trace(*args, **kwargs)
        return {name: s["value"] for name, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}

    def _trace(self, key: Array, index: Array, call: inspect.BoundArguments) -> dict[str, Any]:
        key_draw, key_model = jax.random.split(key)
        values = self.values(key_draw, index, *call.args, **call.kwargs)
        model = handlers.substitute(self.model, substitute_fn=_Global(values))
        with handlers.block(), handlers.seed(rng_seed=key_model):
            return handlers.trace(model).get_trace(*call.args, **call.kwargs)

    def _observation(
        self, key: Array, index: Array, offset: Array, call: inspect.BoundArguments, site: str
    ) -> Observation:
        # One key a draw fixes the global values; the noise of each chunk is its own.
        key_draw, key_model = jax.random.split(key)
        values = self.values(key_draw, index, *call.args, **call.kwargs)
        model = handlers.substitute(self.model, substitute_fn=_Global(values))
        with handlers.block(), handlers.seed(rng_seed=jax.random.fold_in(key_model, offset)):
            trace = handlers.trace(model).get_trace(*call.args, **call.kwargs)
        return unwrap(trace[site]["fn"])

    def _inspect(self, key: Array, call: inspect.BoundArguments, site: str | None) -> tuple[str, bool]:
        """The site to predict, and whether anything in the prediction is random."""
        found: list[dict[str, Any]] = []

        def shapes() -> None:
            trace = self._trace(key, jnp.asarray(0), call)
            found.append({name: s for name, s in trace.items() if s["type"] == "sample"})

        jax.eval_shape(shapes)
        trace = found[0]
        open_sites = [n for n, s in trace.items() if isinstance(unwrap(s["fn"]), Observation) and not s["is_observed"]]
        if site is None and len(open_sites) == 1:
            site = open_sites[0]
        if site not in open_sites:
            fail(
                "site",
                f"one unobserved ngp.observe site of the model: {open_sites}",
                repr(site),
                "Call predict without the data (y=None), and name the site where there are several.",
            )
        local = [n for n, s in trace.items() if role(s) in ("noise", "latent")]
        return site, bool(local) or not self._deterministic

    def _number_of_draws(self, num_samples: int | None, is_random: bool) -> int:
        if num_samples is None:
            return self.num_draws or (DEFAULT_DRAWS if is_random else 1)
        count = check_count("num_samples", num_samples)
        return count if self.num_draws is None else min(count, self.num_draws)


class _Global:
    """Substitute the values of global sites; sites in the data plate stay with their prior."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def __call__(self, site: Mapping[str, Any]) -> Any:
        if site["type"] != "sample" or role(site) in ("noise", "latent") or isinstance(unwrap(site["fn"]), Observation):
            return None
        value = self.values.get(site["name"])
        # A value with one entry for each training row cannot serve new rows.
        fits = value is None or jnp.shape(value) == tuple(site["fn"].shape())
        return value if fits else None


def _is_data(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _spread(count: int, available: int) -> Array:
    """Indices of ``count`` draws spread evenly over those available."""
    return jnp.round(jnp.linspace(0, available - 1, count)).astype(int)


def _bind(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
    try:
        bound = inspect.signature(model).bind(*args, **kwargs)
    except TypeError as error:
        fail(
            "args and kwargs",
            "arguments of the model",
            str(error),
            "Call predict(key, ...) as you call the model.",
            TypeError,
        )
    return bound


def _row_names(bound: inspect.BoundArguments, rows: Sequence[str] | None) -> tuple[str, ...]:
    names = (next(iter(bound.arguments)),) if rows is None else tuple(rows)
    unknown = [name for name in names if name not in bound.arguments or not _is_data(bound.arguments[name])]
    if unknown:
        fail(
            "rows",
            f"names of array arguments among {list(bound.arguments)}",
            f"{unknown}",
            "Name them as the model does.",
        )
    return names


def _check_rows(bound: inspect.BoundArguments, names: tuple[str, ...]) -> None:
    sizes = {name: bound.arguments[name].shape[0] for name in names}
    if len(set(sizes.values())) != 1 or 0 in sizes.values():
        fail("rows", "arguments with the same, non-zero number of rows", f"{sizes}", "Check the first axis of each.")
