"""A verdict on a fit: what is wrong with it, the gravest first, each with the next thing to try.

Findings are looked for in one order, that of how much they spoil: chains that disagree, then noise and functions that
are wrong for a reason that is known, then data that do not look as predicted, then posteriors of the wrong shape.
"""

from collections.abc import Callable, Iterator

import jax
import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_count, check_key, check_type
from numpyro_gp.criticism import fit_checks, posterior_checks
from numpyro_gp.criticism.evidence import gather
from numpyro_gp.criticism.finding import Case, Finding
from numpyro_gp.posterior.posterior import Posterior
from numpyro_gp.rows.call import call_of

MOST = 10
DRAWS = 200
# In the order of how much they spoil.
LOOKS: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    fit_checks.r_hat,
    fit_checks.divergences,
    fit_checks.stranded,
    fit_checks.no_numbers,
    fit_checks.effective_draws,
    fit_checks.noise,
    fit_checks.inducing,
    posterior_checks.more_neighbours,
    posterior_checks.repeated_rows,
    fit_checks.long_lengthscale,
    fit_checks.not_normal,
    fit_checks.follow,
    fit_checks.miscalibrated,
    posterior_checks.fits_differ,
    posterior_checks.pareto,
    posterior_checks.parameters_differ,
    posterior_checks.at_prior,
)


class Findings(tuple[Finding, ...]):
    """What `verdict` has printed, a tuple of `Finding`; to print it names them, and does not say them twice."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{len(self)} findings: {', '.join(one.fault for one in self)}" if self else "no findings"


def verdict(
    posterior: Posterior,
    *data: object,
    key: Array | None = None,
    other: Posterior | None = None,
    num_samples: int = DRAWS,
    **kwargs: object,
) -> tuple[Finding, ...]:
    """What is wrong with a fit: at most ten sentences, the gravest first, each with the next thing to try.

    They are printed and returned as values; a fit without faults is said to be one, and the tuple is empty. It looks at
    what the model has numbers for: inducing inputs, lengthscales and noise of `gp` and `gp_regression`, chains of NUTS,
    the shape of a variational fit, and any observed site with draws. Data are judged with each of them left out, by
    importance weights, at 2000 rows at most. No finding is no proof: held-out data are better (`compare`), and
    `sbc` is better still.

    Parameters
    ----------
    posterior : Posterior
    *data, **kwargs
        Arguments of the model as in the fit, data included and without minibatches.
    key : PRNG key, optional
    other : Posterior, optional
        A second fit of the same model and data, as by NUTS: do their parameters and their functions agree?
    num_samples : int
        Draws of the posterior to look at. R-hat and effective sample sizes take all that are stored.

    Returns
    -------
    tuple of Finding
        Printed once: to print what is returned gives their names.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.1), X[::8])
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.5), obs=y)
    >>> X = jnp.linspace(0.0, 1.0, 24)[:, None]
    >>> y = 0.5 * jax.random.normal(jax.random.key(1), (24,))
    >>> posterior = ngp.Posterior.from_mcmc(model, {"f": 0.3 * jax.random.normal(jax.random.key(0), (200, 3))})
    >>> [finding.fault for finding in ngp.diagnose.verdict(posterior, X, y)]
    1. The 3 inducing inputs of f leave 55 % of its prior variance at the data unexplained, and 5 % is little (the log
    evidence may be ... nats per datum higher): take as many as ngp.inducing.enough(kernel, X) says.
    ['inducing inputs']
    """
    for name, value in {"posterior": posterior, "other": posterior if other is None else other}.items():
        check_type(name, value, Posterior, "made of ngp.Posterior", "Use Posterior.from_svi, from_mcmc or from_stein.")
    key = jax.random.key(0) if key is None else check_key("key", key)
    count, call = check_count("num_samples", num_samples), call_of(posterior.model, data, kwargs)
    second = None if other is None else gather(other, key, call_of(other.model, data, kwargs), count)
    case = Case(gather(posterior, key, call, count), posterior, call, key, second)
    all_faults = findings(case)
    for number, finding in enumerate(all_faults, 1):
        print(f"{number}. {finding}")
    if not all_faults:
        chains = "the chains, " if posterior.kind == "mcmc" else ""
        if any(seen.z.size for seen in case.evidence.sites.values()):
            print(f"No fault was found in {chains}inducing inputs, lengthscales, noise, residuals and calibration.")
        else:
            print(f"No fault was found in {chains}inducing inputs and lengthscales. Such data are not judged.")
    return Findings(all_faults)


def findings(case: Case) -> tuple[Finding, ...]:
    """At most ten, the gravest first."""
    each = (list(look(case)) for look in LOOKS)

    def distance(finding: Finding) -> float:
        """Return how far a number is from its threshold, on either side: of several processes the worst is told."""
        return abs(np.log(max(finding.number, 1e-300) / finding.threshold)) if finding.threshold else finding.number

    return tuple(max(same, key=distance) for same in each if same)[:MOST]
