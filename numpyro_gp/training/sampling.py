"""NumPyro's samplers with a start in one program: the same model, the same draws in distribution, no wait.

`numpyro.infer.NUTS` prepares a chain eagerly: it runs the model, looks for a start, takes a gradient, and each
operation is compiled alone, about a hundred before the first step. Here the same code is compiled as a whole.
"""

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.infer

from numpyro_gp.arrays import Array, on_devices
from numpyro_gp.programs.set_up import in_one_program
from numpyro_gp.programs.trace import is_traced
from numpyro_gp.rows.call import call_of, check_digits_of
from numpyro_gp.rows.model_trace import check_rows_of


class _CompiledStart:
    """What `NUTS` and `HMC` here do otherwise than NumPyro's: what is eager there is one program.

    A model with a start of its own, as `ngp.conditioned` makes it, begins there.
    """

    def __init__(self, model: object = None, *args: object, **kwargs: object) -> None:
        if not args and hasattr(model, "init_strategy"):
            kwargs = {"init_strategy": model.init_strategy, **kwargs}
        own: Any = super()
        own.__init__(model, *args, **kwargs)

    def init(
        self,
        rng_key: Array,
        num_warmup: int,
        init_params: object = None,
        model_args: tuple[object, ...] = (),
        model_kwargs: Any = None,
    ) -> Any:
        """The first state of a chain, or of several chains for as many keys.

        Where the start that was found has no finite density or gradient, NumPyro's own search runs, which says why.
        """
        own: Any = super()
        model = getattr(self, "model", None)  # none where there is a potential alone
        if model is not None and not is_traced():
            call = call_of(model, model_args, model_kwargs or {})
            check_digits_of(call)
            check_rows_of(model, call)
        model_args, model_kwargs = _arguments_as_arrays(model_args, model_kwargs)
        start: Callable[[], Any] = lambda: own.init(rng_key, num_warmup, init_params, model_args, model_kwargs)  # noqa: E731

        def with_sites() -> Any:
            state = start()
            if model is None or jnp.ndim(state.potential_energy):  # of several chains NumPyro asks for all at once
                return state, None
            return state, own.postprocess_fn(model_args, model_kwargs)(state.z)

        if is_traced():
            return start()
        state, sites = in_one_program(with_sites, self)
        self._first = (state.z, sites)
        leaves = jax.tree.leaves((state.potential_energy, state.z_grad))  # of every chain
        return state if all(np.isfinite(np.asarray(leaf)).all() for leaf in leaves) else start()

    def sample(self, state: object, model_args: tuple[object, ...], model_kwargs: object) -> Any:
        """One step, as NumPyro's own."""
        own: Any = super()
        return own.sample(state, *_arguments_as_arrays(model_args, model_kwargs))

    def postprocess_fn(self, model_args: tuple[object, ...], model_kwargs: object) -> Callable[[Any], Any]:
        """What makes sites of a state's values: NumPyro's own. Those of the first state, eager there, are known."""
        own: Any = super()
        transform = own.postprocess_fn(*_arguments_as_arrays(model_args, model_kwargs))
        if getattr(self, "model", None) is None:
            return cast("Callable[[Any], Any]", transform)
        values, sites = vars(self).pop("_first", (None, None))
        return lambda asked: sites if asked is values and sites else in_one_program(lambda: transform(asked))


def _arguments_as_arrays(args: tuple[object, ...], kwargs: object) -> Any:
    """Arguments with JAX's arrays for NumPy's, as `fit` hands them on: a model may take the rows of a plate of them."""
    with jax.ensure_compile_time_eval():  # known arrays, also where a step is traced
        return on_devices((args, kwargs or {}))


class NUTS(_CompiledStart, numpyro.infer.NUTS):
    """`numpyro.infer.NUTS` that starts sooner: its set-up is one compiled program in place of about a hundred.

    Parameters
    ----------
    model : callable
    *args, **kwargs
        As of `numpyro.infer.NUTS`; results are its own too.

    Examples
    --------
    >>> import jax, numpyro, numpyro.distributions as dist, numpyro_gp as ngp
    >>> from numpyro.infer import MCMC
    >>> def model(y):
    ...     mean = numpyro.sample("mean", dist.Normal(0.0, 10.0))
    ...     numpyro.sample("y", dist.Normal(mean, 1.0).expand(y.shape).to_event(1), obs=y)
    >>> mcmc = MCMC(ngp.NUTS(model), num_warmup=100, num_samples=200, progress_bar=False)
    >>> mcmc.run(jax.random.key(0), jax.numpy.full(100, 3.0))
    >>> print(f"{mcmc.get_samples()['mean'].mean():.1f}")
    3.0
    """


class HMC(_CompiledStart, numpyro.infer.HMC):
    """`numpyro.infer.HMC` that starts sooner, as `NUTS` here does.

    Parameters
    ----------
    model : callable
    *args, **kwargs
        As of `numpyro.infer.HMC`.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist, numpyro_gp as ngp
    >>> def model():
    ...     numpyro.sample("mean", dist.Normal(0.0, 10.0))
    >>> mcmc = numpyro.infer.MCMC(ngp.HMC(model, num_steps=10), num_warmup=100, num_samples=200)
    """
