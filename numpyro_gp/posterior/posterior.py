"""``Posterior``: one value after the fit, whichever engine made it, and the predictions it gives."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import overload

from numpyro_gp.arrays import Array, ArrayLike, Model
from numpyro_gp.checks import check_count, check_key, fail
from numpyro_gp.guides.fit_registry import as_fitted, given_of
from numpyro_gp.kernels.functionals import Functional
from numpyro_gp.neighbours.value import neighbours_in
from numpyro_gp.posterior.at_data import AtData
from numpyro_gp.posterior.conditioned import Conditioned
from numpyro_gp.posterior.conditioned_predictor import RowPredictor
from numpyro_gp.posterior.function_set import AskedFunctions, Functions, posterior_functions
from numpyro_gp.posterior.local_functions import LocalFunctions
from numpyro_gp.posterior.new_data import draw_functions, plan_of, predict_rows, predict_within
from numpyro_gp.posterior.prediction import Prediction
from numpyro_gp.posterior.predictor import Predictor
from numpyro_gp.posterior.sources import inducing_of_run, of_chains, of_guide, of_particles, params_of
from numpyro_gp.rows.call import Arguments, argument_names, call_of


@dataclasses.dataclass(frozen=True, eq=False)
class Posterior(AtData):
    """What a fit says, whichever engine made it: predictions, functions, hyper-parameters, ArviZ.

    Build it with `from_svi`, `from_mcmc` or `from_stein`. Sites inside the data plate (latent inputs,
    noise of function draws) belong to the training data and are drawn from their prior in predictions
    (mathematics.md section 11.1). It pickles; a model or a guide that does not, as a ``lambda`` and a function defined
    inside another, is left out with a warning. `save` and `load` do without them.

    Attributes
    ----------
    model : callable
    kind : str
        The engine: "svi", "mcmc" or "stein".
    source : GuideDraws or StoredDraws
        Draws of the global sites, as points or beliefs: those of a guide at its parameters, or draws that are stored.
    num_chains, extra_fields : int, dict
        Number of chains that stored draws come from, one after the other; what the sampler recorded beside them, of
        particles whether they are stranded.
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

    @classmethod
    def from_svi(cls, model: Model, guide: Model, params: Mapping[str, object]) -> "Posterior":
        """Posterior of a variational fit: ``params = svi.get_params(state)`` or ``result.params``."""
        if hasattr(model, "sample_posterior"):
            cure = "Pass the model first: Posterior.from_svi(model, guide, result.params)."
            fail("model", "the model function", f"the guide {type(model).__name__}", cure, TypeError)
        own, inducing = as_fitted(guide, params)
        return cls(model, "svi", of_guide(own, params), inducing=inducing, given=given_of(guide, params))

    @classmethod
    def from_mcmc(cls, model: Model, mcmc: object) -> "Posterior":
        """Posterior from a run of NumPyro's ``MCMC`` (or a dictionary of draws with the draws on the first axis)."""
        return cls(model, "mcmc", *of_chains(mcmc), inducing=inducing_of_run(model, mcmc))

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

        The log density must be finite at every particle of ours, and particles that are stranded, far below the
        others, give a warning: as `ngp.fit` and ``svgd.run`` found it at the end, on whole data, or at arguments of the
        model that are passed here.

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
        inducing = as_fitted(svgd, params_of(svgd, params_or_state))[1]
        return cls(model, "stein", source, extra_fields=record, inducing=inducing)

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
            predictor = Predictor(self, key, Arguments(args[1:], kwargs), site, num_samples, chunk_size, others)
            self._check_taken("predict", (), num_samples=num_samples, chunk_size=chunk_size, site=site, new=new)
            return predictor.each(args[0])
        own = {"num_samples": num_samples, "tolerance": tolerance, "chunk_size": chunk_size, "rows": rows}
        self._check_taken("predict", args, **own, site=site, new=new)
        key, size = check_key("key", key), check_count("chunk_size", chunk_size)
        call = call_of(self.model, args, kwargs)
        plan = plan_of(self, call, rows, site, others)
        predict = lambda count: predict_rows(plan, key, call, count, size)  # noqa: E731
        if tolerance is None or not plan.is_random:
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
    ) -> Predictor | RowPredictor:
        """What predicts one row, or a few, again and again: ``predictor(X_new)`` is `predict` without its overhead.

        ``args`` and ``kwargs`` are the arguments of the model behind those that each call gives; the others are as in
        `predict`. With neighbours among them they are all arguments of the fit, ``posterior.predictor(key, near, y)``,
        and ``predictor(X_new)`` is `predict_at` without its overhead, of the data site ``site``.
        """
        own = {"num_samples": num_samples, "chunk_size": chunk_size, "site": site, "new": new}
        self._check_taken("predictor", (), **own, neighbours=neighbours)
        others = (new,) if isinstance(new, str) else tuple(new)
        if neighbours_in((args, kwargs)):
            if others:
                fail("new", "left out where rows have neighbours", f"{others}", "Leave it out.")
            call = call_of(self.model, args, kwargs)
            return RowPredictor(self, key, call, site, num_samples, chunk_size, neighbours)
        if neighbours is not None:
            cure = "Leave it out, or pass the arguments of the fit: posterior.predictor(key, near, y)."
            fail("neighbours", "left out where there are none among the arguments", neighbours, cure)
        return Predictor(self, key, Arguments(args, kwargs), site, num_samples, chunk_size, others)

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
        self._check_taken("function_draws", args, gp=gp, num_samples=num_samples, neighbours=neighbours)
        given = args or any(name in kwargs for name in argument_names(self.model)[:1])
        call = call_of(self.model, args if given else (X,), kwargs)
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
        self._check_taken("functions", args, num_samples=num_samples, gp=gp, num_features=num_features)
        return posterior_functions(self, key, num_samples, call_of(self.model, args, kwargs), gp, num_features)
