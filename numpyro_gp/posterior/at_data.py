"""Answers at the data of the fit: predictions from them, draws of all sites, hyper-parameters, ArviZ."""

import dataclasses
import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import fail
from numpyro_gp.kernels.functionals import Functional
from numpyro_gp.neighbours.value import NewRows
from numpyro_gp.posterior.arviz import arviz_container, sample_stats
from numpyro_gp.posterior.conditioned import is_conditioned
from numpyro_gp.posterior.conditioned_predictor import RowPredictor
from numpyro_gp.posterior.draws import TrainingDraws, draws_at_data, hyperparameter_draws, stored_index, training_draws
from numpyro_gp.posterior.pickling import Kept
from numpyro_gp.posterior.prediction import Prediction
from numpyro_gp.primitives.neighbours.local_process import LocalProcess
from numpyro_gp.primitives.opening import recorded_processes
from numpyro_gp.primitives.regression import renamed
from numpyro_gp.rows.call import call_of, check_taken, is_data
from numpyro_gp.rows.model_trace import look


@dataclasses.dataclass(frozen=True, eq=False)
class AtData(Kept):
    """A posterior asked at the arguments of its fit, data included."""

    def holds_data(self, *args: object, **kwargs: object) -> bool:
        """Whether the model, called with the arguments of its fit, has its data for `predict_at`."""
        call = call_of(self.model, args, kwargs)
        with recorded_processes() as found:
            look(self.fitted_model, call)
        return any(is_conditioned(process) or isinstance(process, LocalProcess) for process in found.values())

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
        noise: ArrayLike | None = None,
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
        noise : array, optional
            The old name of ``noise_variance``. It works in this release and warns.
        """
        own = {"gp": gp, "noise_variance": noise_variance, "num_samples": num_samples, "chunk_size": chunk_size}
        self._check_taken("predict_at", args, **own, neighbours=neighbours, offset=offset, noise=noise)
        variance, call = renamed("predict_at", noise_variance, noise), call_of(self.model, args, kwargs)
        rows = RowPredictor(self, key, call, gp, num_samples, chunk_size, neighbours)
        if not isinstance(X, Iterator):
            return rows.predict(X, variance, offset)
        if offset is not None or np.ndim(variance if variance is not None else 0):
            got, cure = "numbers for each row", "Predict its parts one after the other, each with its own."
            fail("offset and noise_variance", "None, or one variance, for an iterator of rows", got, cure)
        return rows.each(X, variance)

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
        self._check_taken("draws", args, num_samples=num_samples)
        call = call_of(self.model, args, kwargs)
        return training_draws(self, draws_at_data(self, key, call, num_samples), call)

    def hyperparameters(
        self, key: Array, *args: object, num_samples: int | None = None, **kwargs: object
    ) -> dict[str, Array]:
        """Draws of the latent sites outside every plate that are not GP sites; see `draws` for the arguments.

        Those in plates, as of groups, are in ``draws(key, *args).latent``.
        """
        self._check_taken("hyperparameters", args, num_samples=num_samples)
        call = call_of(self.model, args, kwargs)
        return hyperparameter_draws(self, draws_at_data(self, key, call, num_samples, is_whole=False), call)

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
        self._check_taken("to_arviz", args, num_samples=num_samples, coords=coords, dims=dims)
        found = self.draws(key, *args, num_samples=num_samples, **kwargs)
        arguments = call_of(self.model, args, kwargs).arguments
        constant = {n: np.asarray(x) for n, x in arguments.items() if is_data(x) and n not in found.arguments}
        stats = sample_stats(self.extra_fields, stored_index(self, num_samples), self.num_chains)
        return arviz_container(self.kind, found, constant, stats, self.num_chains, coords=coords, dims=dims)

    def _check_taken(self, method: str, args: tuple[object, ...], **own: object) -> None:
        """Refuse arguments of the model that a method took for its own ``own``, as far as these are not defaults."""
        declared = _defaults_of(type(self), method)
        is_default = lambda name, value: value is declared[name] or (isinstance(value, int) and value == declared[name])  # noqa: E731
        check_taken(self.model, args, method, {n: x for n, x in own.items() if not is_default(n, x)})


@functools.cache
def _defaults_of(kind: type, method: str) -> dict[str, object]:
    """Defaults of the arguments of a method."""
    return {name: one.default for name, one in inspect.signature(getattr(kind, method)).parameters.items()}
