"""The same work by others; a function raises ImportError where its library is not installed."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.contrib import einstein

from tests.benchmarks import work
from tests.benchmarks.clock import Party, compiled


def _matern52(X, lengthscale, variance):
    scaled = X / lengthscale
    norms = jnp.sum(scaled**2, axis=1)
    z = jnp.sqrt(5 * jnp.maximum(norms[:, None] + norms[None, :] - 2 * scaled @ scaled.T, 1e-12))
    return variance * (1 + z + z**2 / 3) * jnp.exp(-z)


def by_hand(X, y):
    """The latent classification of `work.latent` as one writes it in NumPyro, jitter in the kernel."""
    lengthscale, variance = (numpyro.sample(name, dist.LogNormal(0.0, 1.0)) for name in ("lengthscale", "variance"))
    v = numpyro.sample("f", dist.Normal(0.0, 1.0).expand([X.shape[0]]).to_event(1))
    gram = _matern52(X, lengthscale, variance) + 1e-6 * variance * jnp.eye(X.shape[0], dtype=X.dtype)
    with numpyro.plate("data", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=jnp.linalg.cholesky(gram) @ v), obs=y)


def leapfrog_by_hand():
    return work.leapfrog(by_hand, "NumPyro by hand")


def marginal_by_hand(X, y):
    """The regression of `work.marginal` as one writes it in NumPyro."""
    lengthscale, variance, noise = (numpyro.sample(name, dist.LogNormal(0.0, 1.0)) for name in work.MARGINAL_SITES)
    covariance = _matern52(X, lengthscale, variance) + noise * jnp.eye(X.shape[0], dtype=X.dtype)
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(X.shape[0], X.dtype), covariance), obs=y)


def leapfrog_tinygp():
    from tinygp import GaussianProcess, kernels
    from tinygp.kernels.distance import L2Distance

    def model(X, y):
        lengthscale, variance = (numpyro.sample(name, dist.LogNormal(0.0, 1.0)) for name in ("lengthscale", "variance"))
        process = GaussianProcess(
            variance * kernels.Matern52(lengthscale, distance=L2Distance()), X, diag=1e-6 * variance
        )
        f = numpyro.sample("f", process.numpyro_dist())
        with numpyro.plate("data", X.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=f), obs=y)

    return work.leapfrog(model, "tinygp")


def marginal_leapfrog_by_hand():
    return work.leapfrog(marginal_by_hand, "NumPyro by hand")


def marginal_leapfrog_tinygp():
    from tinygp import GaussianProcess, kernels
    from tinygp.kernels.distance import L2Distance

    def model(X, y):
        lengthscale, variance, noise = (numpyro.sample(name, dist.LogNormal(0.0, 1.0)) for name in work.MARGINAL_SITES)
        kernel = variance * kernels.Matern52(lengthscale, distance=L2Distance())
        numpyro.sample("y", GaussianProcess(kernel, X, diag=noise).numpyro_dist(), obs=y)

    return work.leapfrog(model, "tinygp")


def particles_numpyro(model=by_hand):
    return work.particles(model, einstein.SVGD, einstein.RBFKernel, "NumPyro")


def rows_of_numpyro():
    return work.minibatch("NumPyro", nullcontext)


def _gpytorch(size, dtype, natural, mean_points=0):
    import gpytorch
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(getattr(torch, dtype))
    kind = "NaturalVariationalDistribution" if natural else "CholeskyVariationalDistribution"
    X, y = (torch.as_tensor(array, device=device()) for array in work.regression(dtype))

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self):
            strategies = gpytorch.variational
            strategy = strategies.VariationalStrategy(self, X[:size].clone(), getattr(strategies, kind)(size))
            if mean_points:
                belief = strategies.DeltaVariationalDistribution(mean_points)
                inputs = X[size : size + mean_points].clone()
                strategy = strategies.OrthogonallyDecoupledVariationalStrategy(strategy, inputs, belief)
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.MaternKernel(2.5, ard_num_dims=work.COLUMNS)

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    return gpytorch, torch, Model().to(device()), X, y


def device():
    """PyTorch's name of the device that JAX has taken."""
    return "cuda" if jax.default_backend() == "gpu" else "cpu"


def finished(torch):
    """Wait for what PyTorch has been asked to do."""
    if device() == "cuda":
        torch.cuda.synchronize()


def step_gpytorch(size, dtype, natural, mean_points=0):
    gpytorch, torch, model, X, y = _gpytorch(size, dtype, natural, mean_points)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(device())
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, work.ROWS)
    own = [p for name, p in model.named_parameters() if "variational_distribution" in name] if natural else []
    rest = [p for p in [*model.parameters(), *likelihood.parameters()] if not any(p is q for q in own)]
    optimisers = [torch.optim.Adam(rest, 1e-2)]
    if natural:
        optimisers.append(gpytorch.optim.NGD(own, num_data=work.ROWS, lr=0.1))

    def call():
        rows = torch.randperm(work.ROWS, device=device())[: work.BATCH]
        for optimiser in optimisers:
            optimiser.zero_grad()
        (-bound(model(X[rows]), y[rows])).backward()
        for optimiser in optimisers:
            optimiser.step()
        finished(torch)

    return Party("GPyTorch", call)


def prediction_gpytorch(size, dtype, rows=100_000):
    _, torch, model, _, _ = _gpytorch(size, dtype, False)
    model.eval()
    new = np.random.default_rng(1).normal(size=(rows, work.COLUMNS)).astype(dtype)
    new = torch.as_tensor(new, device=device())

    def call():
        with torch.no_grad():
            for part in new.split(8192):
                found = model(part)
                found.mean, found.variance  # noqa: B018
        finished(torch)

    return Party("GPyTorch", call)


def step_gpjax(size, dtype, natural):
    """The step of ``gpjax.fit``, compiled by itself; Adam only."""
    import equinox
    import gpjax
    from gpjax.fit import _prepare_model, get_batch

    X, y = map(jnp.asarray, work.regression(dtype))
    data = gpjax.Dataset(X=X, y=y[:, None])
    one = jnp.ones((), X.dtype)
    kernel = gpjax.kernels.Matern52(lengthscale=jnp.ones(work.COLUMNS, X.dtype), variance=one)
    prior = gpjax.gps.Prior(mean_function=gpjax.mean_functions.Zero(), kernel=kernel)
    belief = gpjax.variational_families.WhitenedVariationalGaussian(
        model=prior * gpjax.likelihoods.Gaussian(), inducing_inputs=X[:size]
    )
    model, optimiser = _prepare_model(belief, data), optax.adam(1e-2)
    arrays, rest = equinox.partition(model, equinox.is_array)

    def step(state):
        arrays, slots, key = state
        key, own = jax.random.split(key)
        batch = get_batch(data, work.BATCH, own)
        loss = lambda arrays: -gpjax.objectives.elbo(equinox.combine(arrays, rest), batch)  # noqa: E731
        value, slope = jax.value_and_grad(loss)(arrays)
        updates, slots = optimiser.update(slope, slots, arrays)
        return (optax.apply_updates(arrays, updates), slots, key), value

    return compiled("GPJax", step, (arrays, optimiser.init(arrays), jax.random.key(0)), carry=True)


def _gpflow(size, dtype):
    import gpflow
    import tensorflow as tf

    gpflow.config.set_default_float(getattr(np, dtype))
    gpflow.config.set_default_jitter(1e-6 if dtype == "float64" else 1e-4)
    X, y = work.regression(dtype)
    kernel = gpflow.kernels.Matern52(lengthscales=np.ones(work.COLUMNS))
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return gpflow, tf, gpflow.models.SVGP(kernel, likelihood, X[:size].copy(), num_data=work.ROWS), X, y


def step_gpflow(size, dtype, natural):
    gpflow, tf, model, X, y = _gpflow(size, dtype)
    if natural:
        gpflow.set_trainable(model.q_mu, False)
        gpflow.set_trainable(model.q_sqrt, False)
    adam, steps = tf.keras.optimizers.Adam(1e-2), gpflow.optimizers.NaturalGradient(0.1)
    batches = tf.data.Dataset.from_tensor_slices((X, y[:, None])).repeat().shuffle(work.ROWS).batch(work.BATCH)
    loss = model.training_loss_closure(iter(batches), compile=False)

    @tf.function
    def both():
        if natural:
            steps.minimize(loss, [(model.q_mu, model.q_sqrt)])
        with tf.GradientTape() as tape:
            value = loss()
        variables = model.trainable_variables
        adam.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))
        return value

    return Party("GPflow", lambda: float(both()))


def prediction_gpflow(size, dtype, rows=100_000):
    _, tf, model, _, _ = _gpflow(size, dtype)
    new = np.random.default_rng(1).normal(size=(rows, work.COLUMNS)).astype(dtype)
    predict = tf.function(model.predict_f)
    parts = np.array_split(new, rows // 8192 + 1)
    return Party("GPflow", lambda: [part.numpy() for x in parts for part in predict(x)])


def deep_step_gpflux(size, dtype):
    """GPflux's layers and their losses; GPflow's likelihood, as `DeepGP.elbo` asks for an older Keras."""
    import gpflow
    import gpflux
    import tensorflow as tf

    tf.keras.backend.set_floatx(dtype)
    gpflow.config.set_default_float(getattr(np, dtype))
    X, y = work.regression(dtype)

    def layer(columns, outputs):
        kernel = gpflow.kernels.Matern52(lengthscales=np.ones(columns))
        points = gpflow.inducing_variables.InducingPoints(X[:size, :columns].copy())
        return gpflux.layers.GPLayer(
            gpflow.kernels.SharedIndependent(kernel, output_dim=outputs),
            gpflow.inducing_variables.SharedIndependentInducingVariables(points),
            num_data=work.ROWS,
            num_latent_gps=outputs,
            mean_function=gpflow.mean_functions.Zero(),
        )

    inner, outer = layer(work.COLUMNS, work.WIDTH), layer(work.WIDTH, 1)
    likelihood, adam = gpflow.likelihoods.Gaussian(0.1), tf.keras.optimizers.Adam(1e-2)
    data = tf.data.Dataset.from_tensor_slices((X, y[:, None])).repeat().shuffle(work.ROWS).batch(work.BATCH)
    batches = iter(data)

    def loss(x, target):
        f = outer(inner(x, training=True), training=True)
        fit = likelihood.variational_expectations(x, f.mean(), f.variance(), target)
        return sum(sum(layer.losses) for layer in (inner, outer)) - tf.reduce_mean(fit)

    loss(*next(batches))
    variables = [v for part in (inner, outer, likelihood) for v in part.trainable_variables]
    adam.build(variables)

    @tf.function
    def step():
        batch = next(batches)
        with tf.GradientTape() as tape:
            value = loss(*batch)
        adam.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))
        return value

    return Party("GPflux", lambda: float(step()))
