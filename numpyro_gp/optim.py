"""Natural gradients beside any optax optimiser, and the ramps of step size that the papers use."""

from collections.abc import Callable, Mapping
from typing import Any

import optax

from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_choice, check_count, check_positive, fail
from numpyro_gp.guides.natural import NATURAL_PREFIX

__all__ = ["natural_gradient", "ramp"]

Schedule = Callable[[Array], Array]


def ramp(initial: float, final: float, num_steps: int, kind: str = "log") -> Schedule:
    """Step size from ``initial`` to ``final`` within ``num_steps``, constant afterwards (mathematics.md section 3.2).

    ``kind="log"``: ``initial (final / initial)^min(1, t/T)``; ``kind="linear"``: a straight line.
    """
    check_positive("initial", initial)
    check_positive("final", final)
    check_count("num_steps", num_steps)
    check_choice("kind", kind, ("log", "linear"))

    if kind == "linear":
        return optax.linear_schedule(initial, final, num_steps)
    return optax.exponential_decay(initial, num_steps, final / initial, end_value=final)


def _is_natural(name: str) -> bool:
    return name.rsplit("/", 1)[-1].startswith(NATURAL_PREFIX)


def _labels(params: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(params, Mapping):
        fail(
            "params",
            "a dictionary of parameters by name",
            f"a {type(params).__name__}",
            "Pass the optimiser to SVI.",
            TypeError,
        )
    labels = {name: "natural" if _is_natural(name) else "rest" for name in params}
    if "natural" not in labels.values():
        fail(
            "guide",
            "one with natural parameters",
            f"parameters {sorted(params)}",
            "Use a recipe with natural=True, such as ngp.guides.coupled(natural=True), or the plain optimiser.",
        )
    return labels


def natural_gradient(
    rest: optax.GradientTransformation, step: float | Schedule = 0.1
) -> optax.GradientTransformationExtraArgs:
    """Natural-gradient steps on the natural parameters of beliefs, ``rest`` on all other parameters.

    The natural gradient itself is the backward rule of the map from natural to mean parameters
    (`numpyro_gp.guides.natural`); here plain steps ``theta - step * gradient`` are enough. With a
    log-concave likelihood and ``step <= 1`` no step can leave the positive definite matrices; for a
    Gaussian likelihood on full data, one step of 1 lands on the optimum.

    Parameters
    ----------
    rest : optax.GradientTransformation
        For kernels, likelihoods, inducing inputs: ``optax.adam(1e-2)``.
    step : float or schedule
        A number in (0, 1], `ramp` or any optax schedule.

    Examples
    --------
    >>> import optax
    >>> optimiser = natural_gradient(optax.adam(1e-2), step=ramp(1e-4, 0.1, 100))
    """
    if not hasattr(rest, "update") or not hasattr(rest, "init"):
        fail("rest", "an optax optimiser", f"{rest!r:.60}", "Pass, for example, optax.adam(1e-2).", TypeError)
    if not callable(step):
        check_positive("step", step)
        if step > 1:
            fail("step", "at most 1", step, "A step of 1 replaces the belief by its conjugate update.")
    return optax.partition({"natural": optax.sgd(step), "rest": rest}, _labels)
