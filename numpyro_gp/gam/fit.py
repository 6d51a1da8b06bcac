"""``ngp.gam``: from a formula and a table to a fit."""

import os

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_choice, check_count, check_key, fail
from numpyro_gp.gam.answers.saved import read
from numpyro_gp.gam.model.model import model
from numpyro_gp.gam.result import Fit
from numpyro_gp.gam.search.engines import of_values, run_engine


def fit(
    terms: object,
    data: object,
    family: object = "gaussian",
    *,
    response: str | None = None,
    weights: object = None,
    trials: str | None = None,
    measure: str = "empirical",
    engine: str = "svi",
    num_steps: int | None = None,
    batch: int | None = None,
    tables: bool = True,
    key: Array | None = None,
    progress: bool = False,
) -> Fit:
    """Fit an additive model to a table: what ``ngp.gam(...)`` calls.

    Columns are standardised, the constant starts at the link of the mean, and priors have the scale of a quick GLM.

    Parameters
    ----------
    terms, data, family, response, weights, trials, measure
        As of `ngp.gam.model`.
    engine : {"svi", "nuts", "svgd"}
        Variational inference until the bound no longer rises; Markov chains; Stein particles. With up to 600 inducing
        inputs a step is one of a quasi-Newton method in the hyper-parameters, with the terms integrated out; with more,
        with very many rows or with ``batch``, natural steps in the terms and Adam's in all else.
    num_steps : int, optional
        Most steps of variational inference, 2000; draws of a chain, 500; particles, 20.
    batch : int, optional
        Rows of a stochastic step; all up to 10 000 rows, 2048 above.
    tables : bool
        Whether more than 10 000 rows with Gaussian noise, where each term reads one column, are counted in tables
        first. Features are then interpolated on the way to the mode, and those of the rows themselves at the end.
    key : PRNG key, optional
        ``jax.random.key(0)``.
    progress : bool
        Show bars.

    Returns
    -------
    Fit

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> data = {"dose": np.linspace(0.0, 1.0, 20), "y": np.linspace(0.0, 1.0, 20)}
    >>> fit = ngp.gam("y ~ linear(dose)", data)
    >>> fit.engine, fit.predict({"dose": [0.5]}).mean.round(2).tolist()
    ('svi', [0.5])
    """
    check_choice("engine", engine, ("svi", "nuts", "svgd"))
    if key is not None:
        check_key("key", key)
    for name, value in (("num_steps", num_steps), ("batch", batch)):
        if value is not None:
            check_count(name, value)
    if not isinstance(tables, bool):
        cure = "Pass tables=False for steps that see the rows themselves."
        fail("tables", "True or False", f"{tables!r:.60}", cure, TypeError)
    built = model(terms, data, family, response=response, weights=weights, trials=trials, measure=measure)
    found = run_engine(key, built, engine, num_steps, batch, tables, progress)
    if key is None:  # the words of jax.random.split(jax.random.key(0))[1]: to make it would be all that compiles
        later = jax.random.wrap_key_data(jnp.asarray(np.array([928981903, 3453687069], np.uint32)), impl="threefry2x32")
    else:
        later = jax.random.split(key)[1]
    return Fit._later(found, built, engine, later)


def load(path: str | os.PathLike[str], family: object = None) -> Fit:
    """Read a fit that `Fit.save` wrote: predictions, terms, summary and figure as before, and nothing is fitted.

    Parameters
    ----------
    path : path
    family : likelihood or function, optional
        That of the fit, where it was none of the names: a file holds no function.

    Returns
    -------
    Fit

    Examples
    --------
    >>> import os, tempfile, numpy as np, numpyro_gp as ngp
    >>> data = {"dose": np.linspace(0.0, 1.0, 20), "y": np.linspace(0.0, 1.0, 20)}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ngp.gam("y ~ linear(dose)", data).save(os.path.join(folder, "fit.npz"))
    ...     again = ngp.gam.load(os.path.join(folder, "fit.npz"))
    >>> again.predict({"dose": [0.5]}).mean.round(2).tolist()
    [0.5]
    """
    saved = read(path, family)
    found = of_values(saved.params, saved.losses, saved.steps, saved.notes, saved.is_double)
    return Fit._later(found._replace(posterior=saved.posterior), saved.model, saved.engine, saved.key)
