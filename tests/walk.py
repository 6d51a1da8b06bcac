"""The way from a user's call to the mathematics: functions of the package that it enters, one inside of the other.

    python -m tests.walk fit
    python -m tests.walk predict
    python -m tests.walk gam

Each line is a stop: a function that is still running when the step of a fit, or the chunk of a prediction, runs its
first line of guide or model; of a gam, when the search asks for its first bound. Below it stand those that were entered
before and are done: what looked at the model, bound its arguments, or found where to start.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp

PACKAGE = str(Path(ngp.__file__).parent)
# Parts of the package that know nothing of steps and chunks: where one of their functions is entered the mathematics begins.
MATHEMATICS = {"kernels", "linalg.py", "means.py", "likelihoods", "beliefs", "sites.py", "primitives", "guides"}
MATHEMATICS |= {"objectives.py", "stein", "optim.py"}
# Draws of guides and chains, which know nothing of chunks either; the bound of a gam, which knows no formula.
DRAWS, BOUND = "posterior/sources.py", "gam/search/bound.py Bound.__call__"
TURNS = "programs/handler_lock.py"  # around functions, as a decorator: no stop that a reader makes
# The function inside of which a step, or a chunk, is run, and which asks for bounds.
INSIDE = {"fit": "loop_of", "predict": "predict_chunks", "gam": "Bound.find_mode"}
X = jnp.linspace(-1.0, 1.0, 8)[:, None]
Y = jnp.sin(3 * X[:, 0])


class Way(NamedTuple):
    """Stops, the outermost first, and functions of the same parts that were entered and left before."""

    stops: list[str]
    beside: list[str]


def model(X, y=None):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), X[::2])
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(scale), obs=y)


def call_of(name: str) -> Callable[[], object]:
    """A call to follow; what it needs is there before."""
    if name == "gam":
        return lambda: ngp.gam("y ~ s(x)", {"x": X[:, 0], "y": Y})
    svi = SVI(model, ngp.AutoGP(model), optax.adam(0.01), Trace_ELBO())
    fit = lambda: ngp.fit(jax.random.key(0), svi, 2, X, Y, progress=False)  # noqa: E731
    if name == "fit":
        return fit
    posterior = ngp.Posterior.from_svi(model, svi.guide, fit().params)
    return lambda: posterior.predict(jax.random.key(1), X)


def walked(call: Callable[[], object], inside: str) -> Way:
    """The way of a call down to the first function of the mathematics that runs inside of a function."""
    stack: list[str] = []
    beside: dict[str, None] = {}
    found: list[Way] = []

    def look(frame, event, argument):
        file, name = frame.f_code.co_filename, frame.f_code.co_qualname.replace(".<locals>", "")
        if not file.startswith(PACKAGE) or name.endswith(("<lambda>", "<genexpr>", "comp>", "__init__")) or found:
            return
        place = file[len(PACKAGE) + 1 :]
        if place == TURNS:
            return
        if event == "call":
            is_mathematics = place.split("/")[0] in MATHEMATICS or place == DRAWS or f"{place} {name}" == BOUND
            if is_mathematics and any(stop.endswith(f" {inside}") for stop in stack):
                found.append(Way(list(stack), [stop for stop in beside if stop not in stack]))
                return
            stack.append(f"{place} {name}")
            beside[stack[-1]] = None
        elif event == "return" and stack and stack[-1] == f"{place} {name}":
            stack.pop()

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    parts = ("training", "rows", "programs", "posterior", "gam", "additive")
    way = found[0]
    return Way(way.stops, [stop for stop in way.beside if stop.startswith(parts) and "check_" not in stop])


def main() -> None:
    for name in sys.argv[1:] or list(INSIDE):
        way = walked(call_of(name), INSIDE[name])
        print(f"{name}: {len(way.stops)} stops before the mathematics begins")
        print("\n".join(f"  {number}. {stop}" for number, stop in enumerate(way.stops, 1)))
        print("beside them, done before:")
        print("\n".join(f"  {stop}" for stop in way.beside))


if __name__ == "__main__":
    main()
