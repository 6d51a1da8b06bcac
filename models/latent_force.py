"""A latent force model: a differential equation driven by an unknown function of time, seen through its solution.

``x' = force(t) - decay * x`` from ``x(0) = 0``. The force has a Gaussian process prior and is never observed;
``f.function`` draws it once for each run of the model, as a function that the solver can call at any time (here
Runge-Kutta steps in a ``lax.scan``; ``jax.experimental.ode.odeint`` and ``diffrax`` take it too). SVI targets the bound
whose expectation over the force is taken by draws; NUTS on the same function targets the posterior of noise
and force, the force being one of ``num_features`` random features (``engine`` returns SVI). The decay is known, from a
run without force, say: a path alone cannot tell a fast decay from a strong force, and a point estimate picks either.

After the fit the force is ``ngp.Posterior.from_svi(model, guide, params).functions(key, 100, **data)``.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp


def solve(force, decay, times, steps=4):
    """The solution at increasing ``times`` ``(N,)``: classical Runge-Kutta, some steps between neighbours."""
    fine = jnp.concatenate([jnp.zeros(1, times.dtype), times])
    ends = fine[:-1, None] + jnp.diff(fine)[:, None] * jnp.arange(1, steps + 1)[None, :] / steps
    grid = jnp.concatenate([fine[:1], ends.reshape(-1)])
    middle = 0.5 * (grid[:-1] + grid[1:])
    driven = [force(t[:, None]) for t in (grid[:-1], middle, grid[1:])]

    def step(x, now):
        h, at_start, at_middle, at_end = now
        first = at_start - decay * x
        second = at_middle - decay * (x + 0.5 * h * first)
        third = at_middle - decay * (x + 0.5 * h * second)
        fourth = at_end - decay * (x + h * third)
        x = x + h * (first + 2 * second + 2 * third + fourth) / 6
        return x, x

    _, path = jax.lax.scan(step, jnp.zeros((), times.dtype), (jnp.diff(grid), *driven))
    return path[steps - 1 :: steps]


def model(X, y=None, *, Z, decay=0.8):
    """Noisy measurements of ``x`` at times ``X`` ``(N, 1)``; ``Z`` are inducing times of the force."""
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 0.5))
    noise = numpyro.sample("noise", dist.LogNormal(-2.0, 1.0))
    f = ngp.gp("force", ngp.kernels.RBF(1.0, lengthscale), inducing=Z)
    path = solve(f.function("residual", num_features=128), decay, X[:, 0])
    with numpyro.plate("data", X.shape[0]):
        numpyro.sample("y", dist.Normal(path, noise), obs=y)


def true_force(t):
    """The force behind `simulate`."""
    return jnp.sin(1.5 * t) + 0.5 * jnp.cos(0.5 * t)


def simulate(key, num_data=60, num_inducing=15):
    """Decay 0.8, noise of scale 0.05, ten units of time."""
    times = jnp.linspace(10.0 / num_data, 10.0, num_data)
    path = solve(lambda t: true_force(t[:, 0]), 0.8, times)
    y = path + 0.05 * jax.random.normal(key, (num_data,))
    return {"X": times[:, None], "y": y, "Z": jnp.linspace(0.0, 10.0, num_inducing)[:, None]}


def guide():
    """A full Gaussian at "force", points elsewhere."""
    return ngp.AutoGP(model)


def engine(guide, num_steps=2500):
    """Ten draws of the force a step, and ever smaller steps: with one the noise is found four times too large."""
    return SVI(model, guide, optax.adam(optax.cosine_decay_schedule(2e-2, num_steps)), Trace_ELBO(num_particles=10))
