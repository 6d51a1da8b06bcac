"""``Posterior``: one object after the fit, whichever engine made it, and the predictions it gives."""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer.autoguide import AutoDelta, AutoGuide

from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_count, check_finite, check_key, check_points, check_positive, fail
from numpyro_gp.guides.auto import AutoGP
from numpyro_gp.posterior.chunks import predict_chunks
from numpyro_gp.posterior.draws import TrainingDraws, hyperparameter_draws, spread_draws, training_draws
from numpyro_gp.posterior.prediction import Prediction
from numpyro_gp.posterior.storage import read_arrays, write_arrays
from numpyro_gp.posterior.tracing import (
    abstract_trace,
    conditioned_observation,
    data_site,
    is_conditioned,
    only_process,
    trace_at,
)
from numpyro_gp.primitives.gp import recorded_processes
from numpyro_gp.sites import Observation, unwrap
from numpyro_gp.training.calls import bind, check_rows, is_data, row_names

__all__ = ["Posterior"]

DEFAULT_DRAWS = 100
Draw = Callable[[Array, Array], dict[str, Any]]


class Posterior:
    """Posterior of a model: draws of its global sites, as points or beliefs, and predictions from them.

    Build it with `from_svi`, `from_mcmc` or `from_stein`. Sites inside the data plate (latent inputs,
    noise of function draws) belong to the training data and are drawn from their prior in predictions
    (mathematics.md section 11.1).

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
        draw: Draw | None,
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
        draw: Draw | None = None
        deterministic = isinstance(guide, AutoDelta)
        if isinstance(guide, AutoGP):
            draw = lambda key, index: guide.global_values(key, params)  # noqa: ARG005, E731
            deterministic = guide.rest is None or isinstance(guide.rest, AutoDelta)
        elif isinstance(guide, AutoGuide):
            draw = lambda key, index: guide.sample_posterior(key, params)  # noqa: ARG005, E731
        posterior = cls(model, "svi", draw, None, deterministic=deterministic)
        posterior.guide, posterior.params = guide, params
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
        if not isinstance(mcmc, Mapping):
            posterior.num_chains, posterior.extra_fields = mcmc.num_chains, dict(mcmc.get_extra_fields())
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
        particles = svgd.particles(params_or_state)
        for site, values in particles.items():
            check_finite(f"the particles' {site!r}", values)
        posterior = cls.from_mcmc(model, particles)
        posterior.kind = "stein"
        posterior.params = svgd.shared(params_or_state) if hasattr(svgd, "shared") else {}
        return posterior

    samples: dict[str, Any] | None = None
    guide: Callable[..., Any] | None = None
    params: dict[str, Any] | None = None
    num_chains: int = 1
    extra_fields: Mapping[str, Any] = MappingProxyType({})

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
        bound = bind(self.model, args, kwargs)
        names = row_names(bound, rows)
        check_rows(bound, names)
        site, data_plate, is_local = data_site(abstract_trace(self, bound), site)
        draws = self._number_of_draws(num_samples, is_local or not self._deterministic)
        order = self._order(draws)

        def one_draw(draw: tuple[Array, Array], part: tuple[dict[str, Array], Array]) -> Observation:
            call = inspect.BoundArguments(bound.signature, {**bound.arguments, **part[0]})
            return unwrap(trace_at(self, *draw, call, data_plate, part[1])[site]["fn"])

        rows_of = {name: jnp.asarray(bound.arguments[name]) for name in names}
        chunks = predict_chunks(one_draw, (jax.random.split(key, draws), order), rows_of, chunk_size)
        return Prediction(chunks, chunks.sizes, key)

    def predict_at(
        self,
        key: Array,
        X: Array,
        /,
        *args: Any,
        gp: str | None = None,
        noise: Array | None = None,
        num_samples: int | None = None,
        chunk_size: int = 8192,
        **kwargs: Any,
    ) -> Prediction:
        """Predict new data of a `gp_regression` model at new inputs ``X``.

        Such a model holds its data inside, so ``args`` and ``kwargs`` are its arguments in the fit, data
        included: ``posterior.predict_at(key, X_new, X, y)``.

        Parameters
        ----------
        key : PRNG key
        X : array (N, D)
            New inputs of the process.
        gp : str, optional
            Name of the data site, where the model has several.
        noise : array () or (N,), optional
            Noise variance of the new data; by default that of the model, where it is one number.
        num_samples, chunk_size : int
            As for `predict`.
        """
        bound = bind(self.model, args, kwargs)
        rows = {"X": check_points("X", X)}
        if noise is not None:
            rows["noise"] = jnp.broadcast_to(check_positive("noise", noise), rows["X"].shape[:1])
        count = self._number_of_draws(num_samples, not self._deterministic)

        def one_draw(draw: tuple[Array, Array], part: tuple[dict[str, Array], Array]) -> Observation:
            with recorded_processes() as found:
                trace_at(self, *draw, bound)
            return conditioned_observation(only_process(found, gp), **part[0])

        draws = (jax.random.split(check_key("key", key), count), self._order(count))
        chunks = predict_chunks(one_draw, draws, rows, check_count("chunk_size", chunk_size))
        return Prediction(chunks, chunks.sizes, key)

    def holds_data(self, *args: Any, **kwargs: Any) -> bool:
        """Whether the model, called with the arguments of its fit, is one of `gp_regression`: see `predict_at`."""
        with recorded_processes() as found:
            abstract_trace(self, bind(self.model, args, kwargs))
        return any(is_conditioned(process) for process in found.values())

    def draws(self, key: Array, *args: Any, num_samples: int | None = None, **kwargs: Any) -> TrainingDraws:
        """Draws of all latent sites, the pointwise log likelihood and replicated data, at the data of the fit.

        ``args`` and ``kwargs`` are the arguments of the model, data included. The log likelihood is on the
        true predictive density, not the bound: ``log E_{p(f_n | v)} p(y_n | f_n)`` at drawn whitened values
        ``v`` (from the belief, the chain or the particle) and hyper-parameters. Beliefs that whitened values
        do not describe (decoupled ones) give ``log p(y_n | f_n)`` at drawn ``f_n``.

        Parameters
        ----------
        num_samples : int, optional
            All stored draws, or 1000 from a guide. Of chains, as many of each.
        """
        bound = bind(self.model, args, kwargs)
        index = self._spread_draws(num_samples)
        keys = jax.random.split(check_key("key", key), index.size)
        return training_draws(self.fitted_model, self.training_values, (keys, jnp.asarray(index)), bound)

    def hyperparameters(
        self, key: Array, *args: Any, num_samples: int | None = None, **kwargs: Any
    ) -> dict[str, Array]:
        """Draws of the latent sites outside every plate that are not GP sites; see `draws` for the arguments."""
        index = self._spread_draws(num_samples)
        keys = jax.random.split(check_key("key", key), index.size)
        call = bind(self.model, args, kwargs)
        return hyperparameter_draws(self.fitted_model, self.training_values, (keys, jnp.asarray(index)), call)

    def _spread_draws(self, num_samples: int | None) -> Any:
        if num_samples is not None:
            check_count("num_samples", num_samples)
        if self.num_draws is None:
            return np.arange(num_samples or 1000)
        return spread_draws(min(num_samples or self.num_draws, self.num_draws), self.num_draws, self.num_chains)

    def to_arviz(
        self,
        key: Array,
        *args: Any,
        num_samples: int | None = None,
        coords: Mapping[str, Sequence[Any]] | None = None,
        dims: Mapping[str, Sequence[str]] | None = None,
        **kwargs: Any,
    ) -> Any:
        """ArviZ's container (``InferenceData``, or a tree from ArviZ 1 on) of this posterior at the data of the fit.

        Groups: posterior, posterior predictive, log likelihood (see `draws` for what it is), observed data,
        constant data, and what NUTS recorded. For ``plot_energy`` run it with
        ``extra_fields=("energy", "diverging")``. The attribute ``sampling`` says what the draws are: those of
        a guide and particles are no chains.

        LOO of a container estimates the leave-one-out density of the model under this posterior. With
        ``inducing`` inputs at all data it agrees with exact leave-one-out; with fewer it is that of the
        sparse model ``p(y_n | v)``, whose terms are independent given ``v``.

        Parameters
        ----------
        key : PRNG key
        *args, **kwargs
            Arguments of the model as in the fit, data included.
        num_samples : int, optional
            As for `draws`.
        coords, dims : dict, optional
            Values along named dimensions, and names of the dimensions of a site or argument where the
            names of plates do not do.
        """
        # The door to the room that judges: opened at the call, so that nothing here depends on it.
        from numpyro_gp.criticism.arviz import arviz_container, sample_stats

        found = self.draws(key, *args, num_samples=num_samples, **kwargs)
        arguments = bind(self.model, args, kwargs).arguments
        constant = {
            name: np.asarray(value)
            for name, value in arguments.items()
            if is_data(value) and name not in found.arguments
        }
        stats = sample_stats(self.extra_fields, self._spread_draws(num_samples), self.num_chains)
        return arviz_container(self.kind, found, constant, stats, self.num_chains, coords=coords, dims=dims)

    def function_draws(
        self, key: Array, X: Array, /, *args: Any, gp: str | None = None, num_samples: int | None = None, **kwargs: Any
    ) -> Array:
        """Functions drawn jointly at the rows of ``X``: ``(S, N)``, or ``(S, N, P)`` for several outputs.

        One function for each posterior draw, from `GaussianProcess.joint`: curves to plot, extrema and
        integrals to compute, where the marginals of `predict` do not do. ``O(N^3)`` for each draw.

        Parameters
        ----------
        key : PRNG key
        X : array (N, D)
            Inputs of the process; not chunked.
        *args, **kwargs
            Arguments that the model needs to run; ``X`` alone by default.
        gp : str, optional
            Name of the process, where the model has several (`gp_regression`: the name of its data).
        num_samples : int, optional
            All stored draws, or 100 from a guide.
        """
        bound = bind(self.model, args or (X,), kwargs)
        count = self._number_of_draws(num_samples, is_random=True)
        order = self._order(count)

        def one(pair: tuple[Array, Array]) -> Array:
            with recorded_processes() as found:
                trace_at(self, *pair, bound)
            process = only_process(found, gp)
            drawn = process.joint(X).sample(jax.random.fold_in(pair[0], 1))
            return drawn if process.outputs is None else jnp.swapaxes(drawn, -1, -2)

        return jax.jit(lambda pairs: jax.lax.map(one, pairs))((jax.random.split(check_key("key", key), count), order))

    def save(self, path: str | os.PathLike) -> None:
        """Write everything but the model and the guide to one file (NumPy's format, no pickle)."""
        groups = {"samples": self.samples or {}, "params": self.params or {}, "extra_fields": dict(self.extra_fields)}
        groups["extra_fields"] = {name: x for name, x in groups["extra_fields"].items() if is_data(x)}
        write_arrays(path, self.kind, groups, {"num_chains": self.num_chains})

    @property
    def fitted_model(self) -> Callable[..., Any]:
        """The model with its own ``numpyro.param`` values (learnt inducing inputs, networks) as they were fitted."""
        return handlers.substitute(self.model, data=dict(self.params)) if self.params else self.model

    @classmethod
    def load(
        cls, path: str | os.PathLike, model: Callable[..., Any], guide: Any = None, *args: Any, **kwargs: Any
    ) -> "Posterior":
        """Read what `save` wrote, for the same model and, after a variational fit, the same guide.

        A guide that was not run yet in this process is set up on ``args`` and ``kwargs``, the arguments of
        the model in the fit.
        """
        kind, groups, notes = read_arrays(path)
        if kind == "svi":
            if guide is None:
                fail("guide", "the guide of the fit", "None", "Pass it: Posterior.load(path, model, guide, X, y).")
            if isinstance(guide, AutoGuide) and guide.prototype_trace is None and (args or kwargs):
                with handlers.block(), handlers.seed(rng_seed=0):
                    guide(*args, **kwargs)
            return cls.from_svi(model, guide, groups["params"])
        posterior = cls.from_mcmc(model, groups["samples"])
        posterior.kind, posterior.num_chains = kind, notes["num_chains"]
        posterior.extra_fields, posterior.params = groups.get("extra_fields", {}), groups.get("params", {})
        return posterior

    # ------------------------------------------------------------------------------- pieces

    def values(self, key: Array, index: Array, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Values of the global sites for one draw."""
        return self.training_values(key, index, *args, **kwargs) if self._draw is None else self._draw(key, index)

    def training_values(self, key: Array, index: Array, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Values of all latent sites for one draw, those of the training data in ``args`` included."""
        if self.guide is None:
            return self._draw(key, index)
        with handlers.block(), handlers.seed(rng_seed=key), handlers.substitute(data=self.params):
            trace = handlers.trace(self.guide).get_trace(*args, **kwargs)
        return {name: s["value"] for name, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}

    def _order(self, count: int) -> Array:
        """Indices of ``count`` draws, spread evenly over those stored."""
        return jnp.round(jnp.linspace(0, (self.num_draws or count) - 1, count)).astype(int)

    def _number_of_draws(self, num_samples: int | None, is_random: bool) -> int:
        if num_samples is None:
            return self.num_draws or (DEFAULT_DRAWS if is_random else 1)
        count = check_count("num_samples", num_samples)
        return count if self.num_draws is None else min(count, self.num_draws)
