"""``Posterior``: one value after the fit, whichever engine made it, and the answers it gives."""

import copy
import dataclasses
import functools
import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from types import MethodType
from typing import Any, Self, overload

import jax
import numpy as np

from numpyro_gp.arrays import Array, ArrayLike, Model
from numpyro_gp.checks import check_count, check_key, fail
from numpyro_gp.guides.fit_registry import as_fitted
from numpyro_gp.kernels.functionals import Functional
from numpyro_gp.neighbours.value import NewRows, neighbours_in
from numpyro_gp.posterior.arviz import arviz_container, sample_stats
from numpyro_gp.posterior.conditioned import Conditioned
from numpyro_gp.posterior.draws import (
    GlobalDraws,
    TrainingDraws,
    draws_at_data,
    is_hyperparameter,
    stored_index,
    training_draws,
)
from numpyro_gp.posterior.function_set import AskedFunctions, Functions, LocalFunctions, posterior_functions
from numpyro_gp.posterior.prediction import Prediction
from numpyro_gp.posterior.predictor import (
    Predictor,
    draw_functions,
    plan_of,
    predict_rows,
    predict_within,
    predictor_of_model,
    predictor_of_process,
)
from numpyro_gp.posterior.sources import (
    GuideDraws,
    of_guide,
    of_particles,
    params_of,
    set_up_by_shapes,
    stored,
    warn_of_nan,
)
from numpyro_gp.posterior.storage import read_arrays, refuse_narrowed, to_pickle, write_arrays
from numpyro_gp.posterior.tracing import Draw, Fitted, at_each_draw
from numpyro_gp.primitives.inducing import sites_at_start
from numpyro_gp.primitives.lines.value import lines_in
from numpyro_gp.primitives.neighbours.local_process import LocalProcess
from numpyro_gp.primitives.opening import recorded_processes
from numpyro_gp.programs.private import arguments_of_run
from numpyro_gp.rows.call import Arguments, Call, argument_names, arguments_of, call_of, check_taken, is_data
from numpyro_gp.rows.model_trace import look
from numpyro_gp.sites import is_latent, role

KINDS = ("svi", "mcmc", "stein", "resampled")
# Of a posterior: its engine, arrays by group, and numbers.
StoredParts = tuple[str, Mapping[str, Mapping[str, object]], Mapping[str, object]]


@dataclasses.dataclass(frozen=True, eq=False)
class Posterior(Fitted):
    """What a fit says, whichever engine made it: predictions, functions, hyper-parameters, ArviZ.

    Build it with `from_svi`, `from_mcmc` or `from_stein`. Sites inside the data plate (latent inputs,
    noise of function draws) belong to the training data and are drawn from their prior in predictions
    (mathematics.md section 11.1). It pickles; a model or a guide that does not, as a ``lambda`` and a function defined
    inside another, is left out with a warning. `save` and `load` do without them.

    Attributes
    ----------
    model : callable
    kind : str
        The engine: "svi", "mcmc" or "stein"; "resampled" of `ngp.diagnose.importance_resample`.
    source : GuideDraws or StoredDraws
        Draws of the global sites, as points or beliefs: those of a guide at its parameters, or draws that are stored.
    num_chains, extra_fields : int, dict
        Number of chains that stored draws come from, one after the other; what the sampler recorded beside them, of
        particles whether they are stranded, and how wide they lie beside the posterior.
    inducing : dict
        Inducing inputs that the model took from its arguments in the fit, by site, where they are known, and what tells
        rows with neighbours from others: predictions refuse others.
    given : dict or None
        Shapes of the arguments of a variational fit, where they are known: what `load` sets a guide up on.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), jnp.array([[0.0], [1.0]]))
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    >>> posterior = ngp.Posterior.from_mcmc(model, {"f": jnp.zeros((3, 2))})
    >>> posterior.predict(jax.random.key(0), jnp.zeros((4, 1))).mean.shape
    (4,)
    """

    def __repr__(self) -> str:
        """The engine and the model, without data and draws."""
        name = getattr(self.model, "__name__", type(self.model).__name__)
        return f"Posterior({self.kind}, {name})"

    def __reduce__(self) -> tuple[object, ...]:
        model, source = to_pickle("model", self.model), self.source
        if isinstance(source, GuideDraws):
            source = dataclasses.replace(source, guide=to_pickle("guide", source.guide))
        fields = self.num_chains, dict(self.extra_fields), self.inducing, self.given
        leaves = jax.tree.leaves((self.samples or {}, dict(self.params)))
        is_double = any(getattr(leaf, "dtype", None) == np.float64 for leaf in leaves)
        return _unpickled, (is_double, type(self), (model, self.kind, source, *fields))

    def __copy__(self) -> Self:
        return dataclasses.replace(self)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return dataclasses.replace(self, source=copy.deepcopy(self.source, memo))

    @classmethod
    def from_svi(cls, model: Model, guide: Model, params: Mapping[str, object]) -> "Posterior":
        """Posterior of a variational fit: ``params = svi.get_params(state)`` or ``result.params``."""
        if hasattr(model, "sample_posterior"):
            cure = "Pass the model first: Posterior.from_svi(model, guide, result.params)."
            fail("model", "the model function", f"the guide {type(model).__name__}", cure, TypeError)
        begun = as_fitted(guide, params)
        return cls(model, "svi", of_guide(begun.guide, params), inducing=begun.inducing, given=begun.given)

    @classmethod
    def from_mcmc(cls, model: Model, mcmc: Any) -> "Posterior":
        """Posterior from a run of NumPyro's ``MCMC`` (or a dictionary of draws with the draws on the first axis)."""
        draws = mcmc if isinstance(mcmc, Mapping) else mcmc.get_samples()
        source = stored(draws, {})
        warn_of_nan("draws", draws, "Leave these draws out, or run the chain again.")
        if isinstance(mcmc, Mapping):
            return cls(model, "mcmc", source)
        # Inducing inputs that the model was given in the run, unless the sampler had another model. A method is made
        # anew whenever it is asked for.
        given, other = arguments_of_run(mcmc), getattr(getattr(mcmc, "sampler", None), "model", None)
        is_same = other is model or (isinstance(other, MethodType) and other == model)
        inducing = {} if given is None or not is_same else sites_at_start(model, *given)[1] or {}
        return cls(model, "mcmc", source, mcmc.num_chains, dict(mcmc.get_extra_fields()), inducing)

    @classmethod
    def from_stein(
        cls,
        model: Model,
        svgd: object,
        params_or_state: object,
        *args: object,
        weights: ArrayLike | None = None,
        **kwargs: object,
    ) -> "Posterior":
        """Posterior whose draws are the particles of `ngp.stein.SVGD`, or of NumPyro's own ``SVGD`` and ``ASVGD``.

        ``params_or_state`` is ``result.params`` or ``result.state``. ``posterior.samples`` has the particles
        by site, the particle axis first. They are no chain: R-hat and effective sample sizes mean nothing here.
        NumPyro's engines leave out the Jacobian of constrained sites: their particles are of another density.
        Keywords of the model that the engine was made with, ``SVGD(model, ..., depth=3)``, are those of the posterior.

        The log density must be finite at every particle of ours. Particles that are stranded, far below the others, or
        narrow, all of them much closer than draws, give a warning: as `ngp.fit` and ``svgd.run`` found it at the end,
        on whole data, or at arguments of the model that are passed here.

        Parameters
        ----------
        *args, **kwargs
            Arguments of the model in the fit, data included, to look at the log density anew.
        weights : array (n,), optional
            Of the particles, as `ngp.stein.weights` finds them; else equal ones. A particle then stands as often among
            10 n draws as its weight says.
        """
        own = getattr(svgd, "model", None)
        if isinstance(own, Conditioned):  # as `ngp.stein.auto` leaves it: particles are in these coordinates
            model = own
        elif static := dict(getattr(svgd, "static_kwargs", None) or {}):
            model = functools.partial(model, **static)
        source, record = of_particles(svgd, params_or_state, args, kwargs, weights)
        begun = as_fitted(svgd, params_of(svgd, params_or_state))
        return cls(model, "stein", source, extra_fields=record, inducing=begun.inducing)

    @overload
    def predict(
        self, key: Array, chunks: Iterator[object], /, *args: object, **kwargs: object
    ) -> Iterator[Prediction]: ...

    @overload
    def predict(self, key: Array, *args: object, **kwargs: object) -> Prediction: ...

    def predict(
        self,
        key: Array,
        *args: object,
        num_samples: int | None = None,
        tolerance: float | None = None,
        chunk_size: int = 8192,
        rows: Sequence[str] | None = None,
        site: str | None = None,
        new: str | Sequence[str] = (),
        **kwargs: object,
    ) -> Prediction | Iterator[Prediction]:
        """Predict the data of the model called with these arguments and without its observations.

        An iterator of inputs traces the model once, and so do `predictor` and `functions`. Every other call of
        `predict` traces it again, which takes about 30 ms, and factorises again.

        Parameters
        ----------
        key : PRNG key
        *args, **kwargs
            Arguments of the model, with new inputs and no data. If the first is an iterator, of arrays or of batches
            as `ngp.fit` takes them, so is what comes back: a prediction for each, made when it is asked for.
        num_samples : int, optional
            Draws in the mixture; all stored draws, or 100 from a guide. It is 1 where nothing is random: the guide has
            point estimates, and the model itself draws no latent inputs, functions or other sites.
        tolerance : float, optional
            As many draws as bring the standard error of the log density of a datum below so many nats, as 0.1: its root
            mean square over data that are drawn from the prediction (`Prediction.log_density_error`). Latent inputs
            often want more than 100. ``num_samples``, 10 000 by default, is then the most, and a warning says where
            they do not suffice.
        chunk_size : int
            Rows that are predicted at a time; of data in a plate of groups those of each group. If the model does not
            treat rows by themselves (it computes with the rows of its plate as with numbers, or with a mean over rows),
            all are predicted in one piece, with a warning; an iterator of inputs is refused then.
        rows : sequence of argument names, optional
            Arguments that have one row for each datum; the first argument of the model by default. Data of more than
            ``chunk_size`` rows are predicted in chunks: arrays as long as the data are cut with them if a plate of the
            model reads them by its rows; any other must be named here.
        site : str, optional
            Site to predict, where the model observes several.
        new : str or sequence of str
            Plates, as of groups, whose members are others than in the fit: their hyper-parameters and functions are
            drawn from the prior that the posterior of the other sites gives them.

        Returns
        -------
        Prediction, or an iterator of them
        """
        others = (new,) if isinstance(new, str) else tuple(new)
        if args and isinstance(args[0], Iterator):
            if tolerance is not None:
                cure = "Predict some rows with it, and pass num_samples=prediction.num_draws."
                fail("tolerance", "None for an iterator of inputs", tolerance, cure)
            self._check_taken("predict", (), num_samples=num_samples, chunk_size=chunk_size, site=site, new=new)
            behind = Arguments(args[1:], kwargs)
            return predictor_of_model(self, key, behind, site, num_samples, chunk_size, others).each(args[0])
        own = {"num_samples": num_samples, "tolerance": tolerance, "chunk_size": chunk_size, "rows": rows}
        self._check_taken("predict", args, **own, site=site, new=new)
        key, size = check_key("key", key), check_count("chunk_size", chunk_size)
        call = call_of(self.model, args, kwargs)
        plan = plan_of(self, call, rows, site, others)
        predict = lambda count: predict_rows(plan, key, call, count, size)  # noqa: E731
        if tolerance is None or not plan.view.is_random:
            return predict(num_samples)
        return predict_within(tolerance, predict, num_samples)

    def predictor(
        self,
        key: Array,
        *args: object,
        num_samples: int | None = None,
        chunk_size: int = 8192,
        site: str | None = None,
        new: str | Sequence[str] = (),
        neighbours: int | str | None = None,
        **kwargs: object,
    ) -> Predictor:
        """What predicts one row, or a few, again and again: ``predictor(X_new)`` is `predict` without its overhead.

        ``args`` and ``kwargs`` are the arguments of the model behind those that each call gives; the others are as in
        `predict`. With neighbours or a line among them they are all arguments of the fit, ``posterior.predictor(key,
        near, y)``, and ``predictor(X_new)`` is `predict_at` without its overhead, of the data site ``site``.
        """
        own = {"num_samples": num_samples, "chunk_size": chunk_size, "site": site, "new": new}
        self._check_taken("predictor", (), **own, neighbours=neighbours)
        others = (new,) if isinstance(new, str) else tuple(new)
        if neighbours_in((args, kwargs)) or lines_in((args, kwargs)):
            if others:
                fail("new", "left out where rows have neighbours", f"{others}", "Leave it out.")
            call = call_of(self.model, args, kwargs)
            return predictor_of_process(self, key, call, site, num_samples, chunk_size, neighbours)
        if neighbours is not None:
            cure = "Leave it out, or pass the arguments of the fit: posterior.predictor(key, near, y)."
            fail("neighbours", "left out where there are none among the arguments", neighbours, cure)
        return predictor_of_model(self, key, Arguments(args, kwargs), site, num_samples, chunk_size, others)

    def function_draws(
        self,
        key: Array,
        X: Functional | ArrayLike,
        /,
        *args: object,
        gp: str | None = None,
        num_samples: int | None = None,
        neighbours: int | None = None,
        **kwargs: object,
    ) -> Array:
        """Functions drawn jointly at the rows of ``X``: ``(S, N)``, or ``(S, N, P)`` for several outputs.

        One function for each posterior draw, from `GaussianProcess.joint`: curves to plot, extrema and
        integrals to compute, where the marginals of `predict` do not do. ``O(N^3)`` for each draw.

        Of a process by neighbours (`ngp.neighbours` among the arguments) row after row: each is given the nearest 64 of
        the data and of the new rows before it, ``O(N K^3)`` (mathematics.md section 16.3).

        Parameters
        ----------
        key : PRNG key
        X : array (N, D) or Functional
            Inputs of the process; not chunked.
        *args, **kwargs
            Arguments that the model needs to run; ``X`` alone by default.
        gp : str, optional
            Name of the process, where the model has several (`gp_regression`: the name of its data).
        num_samples : int, optional
            All stored draws, or 100 from a guide.
        neighbours : int, optional
            Rows that each row is given of a process by neighbours: the nearest 64 in lengthscales of the posterior.
        """
        args = args if args or kwargs.keys() & argument_names(self.model)[:1] else (X,)
        call = self._call("function_draws", args, kwargs, gp=gp, num_samples=num_samples, neighbours=neighbours)
        return draw_functions(self, key, X, call, gp, num_samples, neighbours)

    def functions(
        self,
        key: Array,
        num_samples: int | None = None,
        *args: object,
        gp: str | None = None,
        num_features: int = 2048,
        **kwargs: object,
    ) -> Functions | AskedFunctions | LocalFunctions:
        """Functions of a process, drawn once and callable for ever: ``f(X)`` ``(S, N)``, or ``(S, N, P)``.

        One function for each posterior draw: a draw of the prior, of random features where the kernel has no finite
        ones, corrected at the inducing inputs (mathematics.md section 13). Means and covariances over many functions
        are those of `function_draws`; each single function is as close to a Gaussian process as ``num_features`` make
        it. To optimise, differentiate, integrate or pass to a solver, where `function_draws` needs all inputs at once.
        Kernels without features (functions, and kernels of your own that register none) give `AskedFunctions`, which
        condition on the rows they were asked before, at ``O(n^3)`` for n rows in all. Processes by neighbours give
        `LocalFunctions`, corrected at the nearest 256 rows of the data of each row (mathematics.md section 16.3).

        Parameters
        ----------
        key : PRNG key
            Functions of several processes of one model come from the same posterior draws under the same key.
        num_samples : int, optional
            All stored draws, or 100 from a guide.
        *args, **kwargs
            Arguments that the model needs to run; for `gp_regression` those of the fit, data included.
        gp : str, optional
            Name of the process, where the model has several (`gp_regression`: the name of its data).
        num_features : int
            Random features of each kernel: cosines and sines of half as many frequencies. A product of kernels has
            the product of their numbers for each frequency.
        """
        call = self._call("functions", args, kwargs, num_samples=num_samples, gp=gp, num_features=num_features)
        return posterior_functions(self, key, num_samples, call, gp, num_features)

    def holds_data(self, *args: object, **kwargs: object) -> bool:
        """Whether the model, called with the arguments of its fit, has its data for `predict_at`."""
        call = call_of(self.model, args, kwargs)
        with recorded_processes() as found:
            look(self.fitted_model, call)
        # A process that `gp_regression` made knows the noise of its data.
        return any(process.noise is not None or isinstance(process, LocalProcess) for process in found.values())

    @overload
    def predict_at(
        self, key: Array, X: Iterator[object], /, *args: object, **kwargs: object
    ) -> Iterator[Prediction]: ...

    @overload
    def predict_at(
        self, key: Array, X: Functional | NewRows | ArrayLike, /, *args: object, **kwargs: object
    ) -> Prediction: ...

    def predict_at(
        self,
        key: Array,
        X: Functional | NewRows | ArrayLike | Iterator[object],
        /,
        *args: object,
        gp: str | None = None,
        noise_variance: ArrayLike | None = None,
        num_samples: int | None = None,
        chunk_size: int = 8192,
        neighbours: int | str | None = None,
        offset: ArrayLike | Sequence[ArrayLike | None] | None = None,
        **kwargs: object,
    ) -> Prediction | Iterator[Prediction]:
        """Predict new data of a `gp_regression` model, or of a process by neighbours, at new inputs ``X``.

        Such a model holds its data inside, so ``args`` and ``kwargs`` are its arguments in the fit, data
        included: ``posterior.predict_at(key, X_new, X, y)``. Of a model given its data by neighbours they are
        ``predict_at(key, X_new, near, y)``: each new row is predicted from the data nearest to it. So are new data of
        ``ngp.gp(name, kernel, near[idx])``, seen through the likelihood of the fit.

        Parameters
        ----------
        key : PRNG key
        X : array (N, D), Functional or NewRows
            New inputs of the process. With neighbours also what ``near.find(X_new, K)`` found. Of an iterator of inputs
            comes a prediction for each, made when it is asked for.
        gp : str, optional
            Name of the data site, where the model has several.
        noise_variance : array () or (N,), optional
            Noise variance of the new data, not its standard deviation; by default that of the model, where it is one
            number.
        num_samples, chunk_size : int
            As for `predict`; by neighbours 16 draws by default, as each factorises a block for every row.
        neighbours : int or "auto", optional
            Rows of the data that a new row is predicted from: the nearest 256 in the lengthscales of the posterior, or
            all where there are fewer. It is not tied to the number of the fit, and more are often much better.
            "auto" takes the least of 16, 64, 256 and 1024 from which 300 rows of the data, left out, are predicted as
            well as from four times as many.
        offset : array (N,), optional
            Of the new data, where `observe` had one for those of the fit.
        """
        own = {"gp": gp, "noise_variance": noise_variance, "num_samples": num_samples, "chunk_size": chunk_size}
        call = self._call("predict_at", args, kwargs, **own, neighbours=neighbours, offset=offset)
        rows = predictor_of_process(self, key, call, gp, num_samples, chunk_size, neighbours)
        if not isinstance(X, Iterator):
            return rows.once(X, noise_variance=noise_variance, offset=offset)
        if offset is not None or np.ndim(noise_variance if noise_variance is not None else 0):
            got, cure = "numbers for each row", "Predict its parts one after the other, each with its own."
            fail("offset and noise_variance", "None, or one variance, for an iterator of rows", got, cure)
        return rows.each(X, noise_variance=noise_variance)

    def draws(self, key: Array, *args: object, num_samples: int | None = None, **kwargs: object) -> TrainingDraws:
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
        call = self._call("draws", args, kwargs, num_samples=num_samples)
        return training_draws(self, draws_at_data(self, key, call, num_samples), call)

    def hyperparameters(
        self, key: Array, *args: object, num_samples: int | None = None, **kwargs: object
    ) -> dict[str, Array]:
        """Draws of the latent sites outside every plate that are not GP sites; see `draws` for the arguments.

        Those in plates, as of groups, are in ``draws(key, *args).latent``.
        """
        call = self._call("hyperparameters", args, kwargs, num_samples=num_samples)
        draws = draws_at_data(self, key, call, num_samples, is_whole=False)
        sites = look(self.fitted_model, call).sites

        def one(own: Fitted, draw: Draw, arrays: list[Array]) -> dict[str, Array]:
            values = own.source.training_values(*draw, call.at(arrays))
            return {name: x for name, x in values.items() if name in sites and is_hyperparameter(sites[name])}

        inside = {n for n, s in sites.items() if is_latent(s) and role(s) is None and s["cond_indep_stack"]}
        return GlobalDraws(at_each_draw(one, self, draws, call.arrays), inside)

    def to_arviz(
        self,
        key: Array,
        *args: object,
        num_samples: int | None = None,
        coords: Mapping[str, Sequence[object]] | None = None,
        dims: Mapping[str, Sequence[str]] | None = None,
        **kwargs: object,
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
        call = self._call("to_arviz", args, kwargs, num_samples=num_samples, coords=coords, dims=dims)
        found = training_draws(self, draws_at_data(self, key, call, num_samples), call)
        constant = {n: np.asarray(x) for n, x in call.arguments.items() if is_data(x) and n not in found.arguments}
        stats = sample_stats(self.extra_fields, stored_index(self, num_samples), self.num_chains)
        return arviz_container(self.kind, found, constant, stats, self.num_chains, coords=coords, dims=dims)

    def _check_taken(self, method: str, args: tuple[object, ...], **own: object) -> None:
        """Refuse arguments of the model that a method took for its own ``own``, as far as these are not defaults."""
        declared = inspect.signature(getattr(type(self), method)).parameters
        pairs = ((name, value, declared[name].default) for name, value in own.items())
        given = {n: x for n, x, default in pairs if x is not default and not (isinstance(x, int) and x == default)}
        check_taken(self.model, args, method, given)

    def _call(self, method: str, args: tuple[object, ...], kwargs: dict[str, object], **own: object) -> Call:
        """The arguments of the model in a call of a method that has keywords ``own``."""
        self._check_taken(method, args, **own)
        return call_of(self.model, args, kwargs)

    def save(self, path: str | os.PathLike) -> None:
        """Write everything but the model and the guide to one file (NumPy's format, no pickle).

        So it writes what ``pickle`` refuses: fits of models that are a ``lambda``, stand inside a function, or hold a
        kernel or a likelihood that does. `load` gets the model and the guide from the program that defines them.
        """
        kind, groups, notes = self.parts()
        write_arrays(path, kind, groups, notes)

    def parts(self) -> StoredParts:
        """Everything but the model and the guide: the engine, arrays by group, and numbers."""
        groups: dict[str, Mapping[str, object]] = {"samples": self.samples or {}, "params": self.params}
        groups["inducing"] = self.inducing
        groups["extra_fields"] = {name: x for name, x in self.extra_fields.items() if is_data(x)}
        if isinstance(self.model, Conditioned):
            groups["past"] = self.model.arrays
        return self.kind, groups, {"num_chains": self.num_chains, "given": self.given}

    @classmethod
    def load(cls, path: str | os.PathLike, model: Model, guide: object = None, *args: object, **kwargs: object) -> Self:
        """Read what `save` wrote, for the same model and, after a variational fit, the same guide.

        A guide that was not run yet in this process is set up on the shapes of the arguments of the fit, which the file
        has after `ngp.fit`. Pass the arguments themselves, ``args`` and ``kwargs``, where it has none or they do not
        do: where one of them is no array, number, string or `ngp.neighbours`, where the fit was NumPyro's own run of
        its own guide, and where a support or a Python branch of the model reads their values.
        """
        parts = read_arrays(path)
        if parts[0] not in KINDS:
            cure = "Read pseudo-data with ngp.PseudoData.load."
            fail("path", "a file that Posterior.save wrote", f"{str(path)!r}, of kind {parts[0]!r}", cure)
        return cls.of_parts(parts, model, guide, *args, **kwargs)

    @classmethod
    def of_parts(cls, parts: StoredParts, model: Model, guide: object = None, *args: object, **kwargs: object) -> Self:
        """A posterior of `parts`, with its model and guide; see `load`."""
        kind, groups, notes = parts
        if "past" in groups:
            model = Conditioned.of_arrays(model, groups["past"])
        if kind == "svi":
            if guide is None:
                fail("guide", "the guide of the fit", "None", "Pass it: Posterior.load(path, model, guide).")
            given = notes.get("given")  # files of older releases have none
            if given is not None and not (args or kwargs):
                guide = set_up_by_shapes(guide, arguments_of(given))
            fitted = of_guide(guide, groups["params"], *args, **kwargs)
            return cls(model, kind, fitted, inducing=groups.get("inducing", {}), given=given)
        source = stored(groups["samples"], groups.get("params", {}))
        return cls(model, kind, source, notes["num_chains"], groups.get("extra_fields", {}), groups.get("inducing", {}))


def _unpickled(is_double: bool, kind: type[Posterior], fields: tuple[Any, ...]) -> Posterior:
    """A posterior of a pickle, whose arrays JAX has rounded where it computes in single precision."""
    if is_double and not jax.config.jax_enable_x64:
        refuse_narrowed("the pickle", "a posterior ", "one, of float64")
    return kind(*fields)
