"""What is wrong with a fit, as a value, and what a look at a fit may see."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.criticism.evidence import FitEvidence
from numpyro_gp.criticism.weights import Weights
from numpyro_gp.posterior.posterior import Posterior
from numpyro_gp.rows.call import Call


class Finding(NamedTuple):
    """One thing that is wrong with a fit, as `verdict` finds it.

    Attributes
    ----------
    fault : str
        Its name: "R-hat", "divergences", "stranded particles", "no numbers", "effective draws", "noise",
        "inducing inputs", "jitter", "neighbours", "repeated rows", "long lengthscale", "residuals not normal",
        "residuals follow the inputs", "calibration", "fits differ", "Pareto k", "parameters differ" or
        "lengthscale at its prior".
    sentence : str
    number, threshold : float
        What was found, and where it becomes a fault.
    cure : str
        The next thing to try.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> print(ngp.diagnose.Finding("R-hat", "R-hat is 1.2", 1.2, 1.05, "warm up longer"))
    R-hat is 1.2: warm up longer.
    """

    fault: str
    sentence: str
    number: float
    threshold: float
    cure: str

    def __str__(self) -> str:
        return f"{self.sentence}: {self.cure}."


class Case(NamedTuple):
    """All that findings are made of: evidence, and what else is known of a fit.

    ``weights`` are importance weights that there are already; without them those of the posterior at the call. ``cure``
    is what to try where the fit has a wrong shape, if not what follows from its guide.
    """

    evidence: FitEvidence
    posterior: Posterior | None = None
    call: Call | None = None
    key: Array | None = None
    other: FitEvidence | None = None
    weights: Weights | None = None
    cure: str | None = None


def entries(arrays: Mapping[str, object]) -> Iterator[tuple[str, np.ndarray]]:
    """Every number of some hyper-parameters, by a label: ``lengthscale[0]``; draws on the first axis."""
    for name, given in arrays.items():
        draws = np.asarray(given)
        for at in np.ndindex(draws.shape[1:]):
            yield f"{name}{list(at) or ''}", draws[(slice(None), *at)]
