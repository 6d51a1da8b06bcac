"""The importance-weighted bound against the dense oracle, with its draws given."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI
from numpyro.infer.autoguide import AutoNormal
from numpyro.primitives import Messenger

import numpyro_gp as ngp
from numpyro_gp.beliefs import Coupled
from numpyro_gp.objectives import ImportanceWeightedELBO, importance_weighted_bound, weighted_samples
from tests.oracles.build import kernel_of
from tests.oracles.vectors import cases

TOLERANCE = 1e-9  # the classic bug (independent inner draws) and a forgotten log K are off by more than 1e-2
KEY = jax.random.key(0)


class Inject(Messenger):
    """Local samples ``loc + scale * eps`` with given standard normal draws ``eps`` (K, N)."""

    def __init__(self, fn, eps):
        self.eps = eps
        super().__init__(fn)

    def process_message(self, message):
        if message["type"] == "sample" and message["name"] in self.eps:
            normal = message["fn"].base_dist
            eps = self.eps[message["name"]][..., None]
            message["value"] = jnp.broadcast_to(normal.loc, eps.shape)
            message["value"] += jnp.broadcast_to(normal.scale, eps.shape) * eps


def latent_model(case):
    def model(X, y=None, batch=None):
        X, y = jnp.asarray(X), None if y is None else jnp.asarray(y)
        f = ngp.gp("f", kernel_of(case), case["Z"], jitter=0.0)
        with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
            f_w = f(ngp.latent_inputs("w", X[idx]))
            ngp.observe("y", f_w, ngp.likelihoods.Gaussian(np.sqrt(case["noise"])), obs=None if y is None else y[idx])

    return model


def latent_guide(case, beliefs):
    def guide(X, y=None, batch=None):
        for name, belief in beliefs.items():
            numpyro.sample(name, ngp.Belief(belief))
        loc = numpyro.param("loc", jnp.asarray(case["q_mu"])[:, None])
        log_scale = numpyro.param("log_scale", jnp.log(jnp.asarray(case["q_sd"]))[:, None])
        with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
            numpyro.sample("w", dist.Normal(loc[idx], jnp.exp(log_scale[idx])).to_event(1))

    return guide


def shallow_beliefs(case):
    return {"f": Coupled(jnp.asarray(case["m"]), jnp.linalg.cholesky(jnp.asarray(case["S"])))}


def shallow(case, samples):
    eps = jnp.asarray(case["eps"])[:, :samples].T
    return latent_model(case), Inject(latent_guide(case, shallow_beliefs(case)), {"w": eps})


def local_params(case):
    return {"loc": jnp.asarray(case["q_mu"])[:, None], "log_scale": jnp.log(jnp.asarray(case["q_sd"]))[:, None]}


@pytest.mark.parametrize("samples", [1, 5, 50])
@pytest.mark.parametrize("case", cases("iw"))
def test_bound_with_given_draws(case, samples):
    model, guide = shallow(case, samples)
    objective = ImportanceWeightedELBO(samples)
    loss = objective.loss(KEY, {}, model, guide, case["X"], case["y"])
    np.testing.assert_allclose(-loss, case[f"bound_given_eps_{samples}"], atol=TOLERANCE)
    drawn = weighted_samples(KEY, {}, model, guide, (case["X"], case["y"]), {}, num_samples=samples)
    np.testing.assert_allclose(drawn.log_weights.T, case["log_weights"][:, :samples], atol=TOLERANCE)


@pytest.mark.parametrize("case", cases("iw"))
@pytest.mark.parametrize(("doubly", "name"), [(False, "grad_standard_5"), (None, "grad_dreg_5")])
def test_gradients_of_the_local_parameters(case, doubly, name):
    model, guide = shallow(case, 5)
    objective = ImportanceWeightedELBO(5, doubly_reparametrised=doubly)
    loss = lambda params: objective.loss(KEY, params, model, guide, case["X"], case["y"])  # noqa: E731
    value, gradient = jax.jit(jax.value_and_grad(loss))(local_params(case))
    np.testing.assert_allclose(-value, case["bound_given_eps_5"], atol=TOLERANCE)
    found = -np.hstack([gradient["loc"], gradient["log_scale"]])
    np.testing.assert_allclose(found, case[name], atol=1e-6)
    assert np.abs(case["grad_standard_5"] - case["grad_dreg_5"]).max() > 1e-3


@pytest.mark.long
@pytest.mark.parametrize("slope", [None, 0.8])
def test_a_local_site_that_depends_on_another_has_the_plain_gradient(slope):
    """Holding all of log q(w2 | w1) cut the path of w1 through it: 1.02 for a derivative of 0.69, over many draws.

    At one key the plain gradient is the derivative of the loss, and that of independent sites has another noise.
    """

    def model(y):
        with numpyro.plate("data", 1):
            first, second = (numpyro.sample(name, dist.Normal(0.0, 1.0)) for name in ("w1", "w2"))
            numpyro.sample("y", dist.Normal(first + 2 * second, 0.7), obs=y)

    def guide(y):
        spread = jnp.exp(numpyro.param("log_scale", 0.0))
        with numpyro.plate("data", 1):
            first = numpyro.sample("w1", dist.Normal(0.1, spread))
            numpyro.sample("w2", dist.Normal(0.3 + (0.0 if slope is None else slope * first), 0.7))

    def loss(log_scale, doubly=None):
        objective = ImportanceWeightedELBO(4, doubly_reparametrised=doubly)
        return objective.loss(KEY, {"log_scale": log_scale}, model, guide, jnp.array([1.5]))

    step = 1e-5
    value = jax.jit(loss)
    difference = (value(-0.2 + step) - value(-0.2 - step)) / (2 * step)
    found = jax.jit(jax.grad(loss))(-0.2)
    assert (abs(found - difference) < 1e-6) == (slope is not None)
    if slope is not None:
        with pytest.raises(ValueError, match="doubly_reparametrised must be None or False for a guide in which"):
            loss(-0.2, True)


@pytest.mark.long
def test_doubly_reparametrised_leaves_all_other_gradients_alone():
    case = cases("iw")[0]
    _, guide = shallow(case, 5)

    def model(X, y):
        noise = numpyro.param("noise", 0.5)
        f = ngp.gp("f", ngp.kernels.RBF(numpyro.param("variance", 1.0), 1.0), case["Z"])
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(ngp.latent_inputs("w", X)), ngp.likelihoods.Gaussian(noise), obs=y)

    start = {"noise": 0.5, "variance": 1.0}
    gradients = []
    for doubly in (False, True):
        objective = ImportanceWeightedELBO(5, doubly_reparametrised=doubly)
        slope = jax.grad(lambda p: objective.loss(KEY, p, model, guide, case["X"], case["y"]))  # noqa: B023
        gradients.append(jax.jit(slope)(start))
    for name in start:
        np.testing.assert_allclose(gradients[0][name], gradients[1][name], rtol=1e-12)


# ------------------------------------------------------------- a sampled layer above the latent inputs


def deep_model(case):
    def model(X, y=None):
        weight = jnp.asarray(case["layer0/mean_weight"])
        inner = ngp.gp(
            "inner", kernel_of(case, "layer0/"), case["layer0/Z"], mean=lambda x: (x @ weight)[..., 0], jitter=0.0
        )
        outer = ngp.gp("outer", kernel_of(case, "layer1/"), case["layer1/Z"], jitter=0.0)
        with numpyro.plate("data", X.shape[0]):
            inputs = ngp.latent_inputs("w", X)
            hidden = inner.draw("e", inputs)
            ngp.observe("y", outer(hidden[..., None]), ngp.likelihoods.Gaussian(np.sqrt(case["noise"])), obs=y)

    return model


def deep_beliefs(case):
    return {
        name: Coupled(jnp.asarray(case[f"layer{i}/m"]), jnp.asarray(case[f"layer{i}/S_chol"]))
        for i, name in enumerate(("inner", "outer"))
    }


def deep_guide(case, samples=None):
    return Inject(latent_guide(case, deep_beliefs(case)), {"w": jnp.asarray(case["eps_w"])[:, :samples].T})


@pytest.mark.long
@pytest.mark.parametrize("case", cases("iw_deep"))
def test_inner_draws_are_joint_over_the_samples_of_a_datum(case):
    """Exactly the oracle's bound at its draws."""
    noise = {"e": jnp.asarray(case["eps_f"]).T}
    model = handlers.substitute(deep_model(case), noise)

    def with_noise(X, y=None):  # whose value 3 and density, which would change the bound by more than 1, enter nowhere
        deep_guide(case)(X)
        with numpyro.plate("data", len(X)):
            numpyro.sample("e", dist.Normal(3.0, 0.1))

    for guide in (deep_guide(case), with_noise):
        # The library adds its relative jitter 1e-6 to the K x K covariance.
        loss = ImportanceWeightedELBO(3).loss(KEY, {}, model, guide, case["X"], case["y"])
        np.testing.assert_allclose(-loss, case["bound_given_eps"], atol=1e-4)


@pytest.mark.long
def test_a_sampled_layer_has_the_plain_gradient_by_default():
    """Squared weights would be biased there: None is False, and True is refused."""
    case = cases("iw_deep")[0]

    def gradient(doubly):
        objective = ImportanceWeightedELBO(3, doubly_reparametrised=doubly)

        def loss(shift):
            X = case["X"] + shift
            return objective.loss(KEY, {}, deep_model(case), deep_guide(case, 3), X, case["y"])

        return jax.jit(jax.grad(loss))(0.1)

    np.testing.assert_allclose(gradient(None), gradient(False), rtol=1e-12)


# ----------------------------------------------------------------------- minibatches, guides, engines


def test_minibatch_bound_is_unbiased():
    """The average over all batches of two of three data is the full bound; no N/N_b is off by a third."""
    case = cases("iw")[0]
    eps = jnp.asarray(case["eps"])[:, :5].T
    full = -ImportanceWeightedELBO(5).loss(KEY, {}, *shallow(case, 5), case["X"], case["y"])
    bounds = []
    for pair in ((0, 1), (0, 2), (1, 2)):
        batch = jnp.asarray(pair)
        guide = Inject(latent_guide(case, shallow_beliefs(case)), {"w": eps[:, batch]})
        guide = handlers.substitute(guide, {"data": batch})
        bounds.append(
            -ImportanceWeightedELBO(5).loss(KEY, {}, latent_model(case), guide, case["X"], case["y"], batch=2)
        )
    np.testing.assert_allclose(np.mean(bounds), full, atol=TOLERANCE)
    assert np.std(bounds) > 1e-3


@pytest.mark.long
def test_natural_step_on_the_last_layer_uses_the_weights():
    """One step of the recipe against mathematics.md section 3.2 with (w g, w lambda) in NumPy; unweighted is > 1e-2 off."""
    case = cases("iw")[0]
    rho, noise, eps = 0.4, case["noise"], np.asarray(case["eps"])[:, :5]
    w = case["q_mu"][:, None] + case["q_sd"][:, None] * eps
    inputs = np.stack([np.broadcast_to(case["X"], w.shape), w], -1).reshape(-1, 2)
    kernel, Z = kernel_of(case), jnp.asarray(case["Z"])
    A = np.linalg.solve(np.linalg.cholesky(kernel.matrix(Z)), np.asarray(kernel.matrix(Z, jnp.asarray(inputs))))
    variance = case["variance"] - (A**2).sum(0) + (A**2).sum(0)  # the start is the prior
    log_r = -0.5 * np.log(2 * np.pi * noise) - (np.repeat(case["y"], 5) ** 2 + variance) / (2 * noise)
    log_r = log_r.reshape(3, 5) - 0.5 * w**2 + 0.5 * eps**2 + np.log(case["q_sd"])[:, None]
    weights = np.exp(log_r - log_r.max(1, keepdims=True))
    weights = (weights / weights.sum(1, keepdims=True)).ravel()
    precision = np.eye(4) + rho * (A * weights / noise) @ A.T
    shift = rho * A @ (weights * np.repeat(case["y"], 5) / noise)

    recipe = ngp.guides.coupled(natural=True)

    def guide(X, y=None, batch=None):
        prior = handlers.trace(handlers.seed(handlers.block(latent_model(case), hide=["data"]), 0))
        with handlers.block():
            site = prior.get_trace(X, y)["f"]
        numpyro.sample("f", ngp.Belief(recipe("f", site["fn"])))
        with numpyro.plate("data", 3):
            numpyro.sample("w", dist.Normal(case["q_mu"][:, None], case["q_sd"][:, None]).to_event(1))

    injected = Inject(guide, {"w": jnp.asarray(eps).T})
    svi = SVI(latent_model(case), injected, optax.sgd(rho), ImportanceWeightedELBO(5))
    params = {"f/ngp:natural_shift": jnp.zeros(4), "f/ngp:natural_precision": jnp.eye(4)}
    loss = lambda p: svi.loss.loss(KEY, p, svi.model, injected, case["X"], case["y"])  # noqa: E731
    gradient = jax.jit(jax.grad(loss))(params)
    np.testing.assert_allclose(jnp.eye(4) - rho * gradient["f/ngp:natural_precision"], precision, atol=1e-8)
    np.testing.assert_allclose(-rho * gradient["f/ngp:natural_shift"], shift, atol=1e-8)


@pytest.mark.long
def test_user_sites_in_the_plate_are_local_too():
    """A positive local site under AutoNormal: its transformed samples and their Jacobian enter the weights.

    Conjugate: the guide at the prior makes every weight the likelihood; typed out in NumPy from the drawn values.
    """

    def model(y):
        with numpyro.plate("data", 4):
            z = numpyro.sample("z", dist.LogNormal(0.2, 0.7))
            numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

    y = jnp.arange(4.0)
    guide = AutoNormal(model)
    with handlers.seed(rng_seed=0):
        guide(y)
    params = {"z_auto_loc": jnp.full(4, 0.2), "z_auto_scale": jnp.full(4, 0.7)}
    drawn = weighted_samples(KEY, params, model, guide, (y,), {}, num_samples=6)
    z = np.asarray(drawn.values["z"])
    assert z.shape == (6, 4)
    assert np.unique(z).size == 24
    np.testing.assert_allclose(drawn.log_weights, -0.5 * (np.arange(4.0) - z) ** 2 - 0.5 * np.log(2 * np.pi), atol=1e-9)
    np.testing.assert_allclose(
        importance_weighted_bound(drawn.log_weights), np.log(np.mean(np.exp(drawn.log_weights), 0)), atol=1e-12
    )


def test_no_latent_inputs_gives_the_usual_bound():
    case = cases("svgp")[0]

    def model(X, y=None):
        f = ngp.gp("f", kernel_of(case), case["Z"], jitter=0.0)
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(np.sqrt(case["noise"])), obs=y)

    guide = lambda X, y=None: numpyro.sample("f", ngp.Belief(Coupled(case["m"], case["S_chol"])))  # noqa: E731
    loss = ImportanceWeightedELBO(7).loss(KEY, {}, model, guide, case["X"], case["y"])
    np.testing.assert_allclose(-loss, case["elbo_gaussian"], atol=TOLERANCE)
