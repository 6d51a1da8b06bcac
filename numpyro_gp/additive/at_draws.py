"""Additive processes at the draws of a posterior."""

from collections.abc import Callable, Mapping
from typing import Any

import jax

from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_type, fail
from numpyro_gp.posterior.posterior import Posterior
from numpyro_gp.posterior.tracing import Draw, at_each_draw, draws_of, key_of, plates_at, trace_at
from numpyro_gp.primitives.additive_gp import AdditiveGP
from numpyro_gp.primitives.opening import recorded_processes
from numpyro_gp.primitives.process import GaussianProcess
from numpyro_gp.rows.call import call_of


def check_posterior(posterior: object) -> None:
    """Refuse what is no posterior."""
    cure = "Use Posterior.from_svi, .from_mcmc or .from_stein, or ngp.sobol.draws(f, key) of one process."
    check_type("posterior", posterior, Posterior, "an ngp.Posterior", cure)


def each_draw(
    posterior: Posterior,
    key: Array,
    function: Callable[[AdditiveGP, Array], object],
    *args: object,
    num_draws: int | None = None,
    site: str | None = None,
    **kwargs: object,
) -> Any:
    """Any quantity of an additive process with its uncertainty: ``function(f, key)`` at each posterior draw.

    Parameters
    ----------
    posterior : Posterior
        Of any engine. Where nothing but the belief is random, there is one draw.
    key : PRNG key
    function : callable
        Takes the `AdditiveGP` of a draw and a key; returns arrays.
    *args, **kwargs
        Arguments of the model, as for `Posterior.predict`.
    num_draws : int, optional
        All stored draws, or 100 (1 where hyper-parameters are points and the model draws nothing).
    site : str, optional
        Name of the additive site, where there are several.

    Returns
    -------
    like what ``function`` returns
        With the draws on the first axis.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     kernel, Z = ngp.kernels.ZeroMean(ngp.kernels.RBF(1.0, 0.3), ngp.kernels.Uniform()), jnp.eye(3)[:, :2]
    ...     f = ngp.additive_gp("f", {"a": kernel.on(0), "b": kernel.on(1)}, {"a": Z, "b": Z})
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    >>> posterior = ngp.Posterior.from_mcmc(model, {"f": jax.random.normal(jax.random.key(0), (5, 6))})
    >>> X = jnp.array([[0.0, 0.0], [0.5, 1.0], [1.0, 0.5]])
    >>> found = ngp.sobol.each_draw(posterior, jax.random.key(1), lambda f, key: ngp.sobol.plug_in(f).index["a"], X)
    >>> found.shape
    (5,)
    """
    return with_number(posterior, key, lambda _: function, args, kwargs, num_draws, site)


def with_number(
    posterior: Posterior,
    key: Array,
    make: Callable[[int], Callable[[AdditiveGP, Array], object]],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    num_draws: int | None,
    site: str | None,
) -> Any:
    """`each_draw` of a function that is made once the number of draws is known."""
    check_posterior(posterior)
    call = call_of(posterior.model, args, kwargs)
    plates, is_random = plates_at(posterior, call)
    index = posterior.spread(num_draws, is_random)
    function = make(index.size)

    def one(own: Posterior, draw: Draw, arrays: list[Array]) -> Any:
        key_model, key_function = jax.random.split(draw[0])
        with recorded_processes() as processes:
            trace_at(own, (key_model, draw[1]), call.at(arrays), plates)
        f = _additive(processes, site)
        return function(f, key_of(key_function, f.name))  # the noise of one process is not that of another

    return at_each_draw(one, posterior, draws_of(key, index), call.arrays)


def _additive(processes: Mapping[str, GaussianProcess], site: str | None) -> AdditiveGP:
    """The additive process of a name, or the only one."""
    found = {name: process for name, process in processes.items() if isinstance(process, AdditiveGP)}
    if site is None and len(found) == 1:
        return next(iter(found.values()))
    if site not in found:
        fail("site", f"one additive_gp site of the model: {list(found)}", repr(site), "Name one of them: site='f'.")
    return found[site]
