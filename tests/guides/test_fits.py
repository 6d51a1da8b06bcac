"""What a fit was set up with belongs to its result, not to the guide that was used last."""

import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro.infer import MCMC, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta, AutoMultivariateNormal, AutoNormal

import numpyro_gp as ngp
from numpyro_gp.guides.fit_registry import inducing_at_start

KEY = jax.random.key(0)
X = np.linspace(-1.0, 1.0, 12)[:, None]
Y = np.sin(3 * X[:, 0])
Z, OTHER, NEW = X[::3], X[1::3], X[:3] + 0.05
REFUSAL = "inducing inputs of 'f' must be those of the fit, but got others, up to"


def model(X, y=None, *, Z):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), Z, jitter=1e-6)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)


def exact(points, rows):
    """Mean of Titsias' optimum at ``NEW``, by NumPy: one natural step of 1 lands there."""
    gram = lambda A, B: np.exp(-0.5 * (A - B.T) ** 2 / 0.25)  # noqa: E731
    K, cross = gram(points, points) + 1e-6 * np.eye(len(points)), gram(points, X[:rows])
    return gram(NEW, points) @ np.linalg.solve(0.01 * K + cross @ cross.T, cross @ Y[:rows])


def natural(recipe=ngp.guides.coupled):
    guide = ngp.AutoGP(model, {"f": recipe(natural=True)})
    return guide, SVI(model, guide, ngp.optim.natural_gradient(optax.sgd(0.1), 1.0), Trace_ELBO())


def fit(svi, points, rows=12):
    return ngp.fit(KEY, svi, 1, X[:rows], Y[:rows], Z=points, progress=False).params


@pytest.mark.long
def test_each_result_of_one_guide_predicts_with_its_own_inducing_inputs_and_folds():
    guide, svi = natural()
    folds = {"first": (Z, 12), "second": (OTHER, 12), "all rows": (X[:9], 9)}  # of another number of inducing inputs
    params = {name: fit(svi, *fold) for name, fold in folds.items()}
    assert np.array_equal(inducing_at_start(pickle.loads(pickle.dumps(guide)))["f"][""], X[:9])  # of the last fit
    svi.evaluate(svi.init(KEY, X, Y, Z=Z), X, Y, Z=Z + 0.1)  # says nothing of any fit
    for name, (points, rows) in folds.items():
        for own in (params[name], jax.tree.map(jnp.array, params[name]) | {"more": jnp.ones(())}):
            posterior = ngp.Posterior.from_svi(model, guide, own)
            np.testing.assert_allclose(posterior.predict(KEY, NEW, Z=points).mean, exact(points, rows), atol=1e-5)
        with pytest.raises(ValueError, match=REFUSAL):
            posterior.predict(KEY, NEW, Z=points + 0.01)
        assert guide.median(own)["f"].shape == (len(points),)
    assert [type(own) for own in params.values()] == [dict] * 3


@pytest.mark.long
def test_pseudo_data_are_at_the_inducing_inputs_of_their_fit():
    guide, svi = natural(ngp.guides.conditional)
    first, second = fit(svi, Z), fit(svi, OTHER)
    for params, points in ((first, Z), (second, OTHER)):
        past = ngp.pseudo_data(guide, params)["f"]
        np.testing.assert_array_equal(past.inducing, points)
        np.testing.assert_allclose(past.shift, ngp.pseudo_data(guide, params, X, Y, Z=points)["f"].shift, rtol=1e-6)


@pytest.mark.long
def test_runs_of_numpyro_end_unseen_and_are_known_once_they_are_asked_for():
    _, svi = natural()
    guide, run = svi.guide, lambda points: svi.run(KEY, 1, X, Y, Z=points, progress_bar=False).params
    first = run(Z)
    ngp.Posterior.from_svi(model, guide, first)
    second = run(OTHER)
    for params, points in ((second, OTHER), (first, Z)):
        posterior = ngp.Posterior.from_svi(model, guide, params)
        np.testing.assert_allclose(posterior.predict(KEY, NEW, Z=points).mean, exact(points, 12), atol=1e-5)
    run(Z), run(OTHER)
    unknown = jax.tree.map(lambda leaf: leaf + 1.0, second)
    with pytest.raises(
        ValueError, match=r"params must be those of a fit of this guide.*2 fits.*result\.params of ngp\.fit"
    ):
        ngp.Posterior.from_svi(model, guide, unknown)
    svi.guide = ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)})
    ngp.Posterior.from_svi(model, svi.guide, run(Z))
    changed = {name: leaf[..., :3] for name, leaf in first.items()}
    with pytest.raises(ValueError, match=r"keeps the shapes of its first run by SVI\.run: make one"):
        ngp.Posterior.from_svi(model, svi.guide, changed)


def hand_written(X, y=None, *, Z):
    numpyro.sample("f", ngp.Belief(ngp.beliefs.MeanField(numpyro.param("mean", jnp.zeros(len(Z))), jnp.ones(len(Z)))))


@pytest.mark.long
@pytest.mark.parametrize("guide", [AutoNormal(model), AutoDelta(model), hand_written], ids=["normal", "delta", "hand"])
def test_guides_that_are_not_ours_know_theirs(guide):
    svi = SVI(model, guide, optax.sgd(0.01), Trace_ELBO())
    first, second = fit(svi, Z), fit(svi, OTHER)
    for params, own, other in ((first, Z, OTHER), (second, OTHER, Z)):
        posterior = ngp.Posterior.from_svi(model, guide, params)
        posterior.predict(KEY, NEW, Z=own, num_samples=1)
        with pytest.raises(ValueError, match=REFUSAL):
            posterior.predict(KEY, NEW, Z=other, num_samples=1)


@pytest.mark.long
def test_an_autoguide_that_joins_its_values_is_fitted_to_one_number_of_them():
    svi = SVI(model, AutoMultivariateNormal(model), optax.sgd(0.01), Trace_ELBO())
    fit(svi, Z)
    with pytest.raises(
        ValueError, match=r"data must be of the 4 latent values that AutoMulti.* first fitted to.* with 3"
    ):
        fit(svi, Z[1:])


@pytest.mark.long
def test_particles_of_one_engine_know_their_own():
    svgd = ngp.stein.SVGD(model, optax.sgd(0.01), num_stein_particles=1)
    first = ngp.fit(KEY, svgd, 1, X, Y, Z=Z, progress=False)
    second = svgd.run(KEY, 1, X, Y, Z=OTHER, progress_bar=False)
    for given, own, other in ((first.params, Z, OTHER), (first.state, Z, OTHER), (second.params, OTHER, Z)):
        posterior = ngp.Posterior.from_stein(model, svgd, given)
        posterior.predict(KEY, NEW, Z=own)
        with pytest.raises(ValueError, match=REFUSAL):
            posterior.predict(KEY, NEW, Z=other)


@pytest.mark.long
def test_a_model_that_is_a_method_is_one_function():
    class Study:
        def model(self, X, y=None, *, Z):
            model(X, y, Z=Z)

    study = Study()
    mcmc = MCMC(ngp.NUTS(study.model), num_warmup=1, num_samples=1, progress_bar=False)
    mcmc.run(KEY, X, Y, Z=Z)
    posterior = ngp.Posterior.from_mcmc(study.model, mcmc)
    with pytest.raises(ValueError, match=REFUSAL):
        posterior.predict(KEY, NEW, Z=OTHER)


@pytest.mark.long
def test_inducing_inputs_that_the_model_makes_are_compared():
    """Of its arguments: refused elsewhere. Of parameters, and of the rows of plates: they are not those of the start."""

    def made(X, y=None, scale=1.0):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), X[::4] * scale)
        learnt = ngp.gp("learnt", ngp.kernels.RBF(1.0, 0.5), X[::4] * numpyro.param("w", jnp.asarray(1.0)))
        with numpyro.plate("data", len(X)) as rows:
            own = ngp.gp("own", ngp.kernels.RBF(0.1, 0.5), X[rows][:, None] + 1.0)
            at = own(X[rows][:, None]).mean[..., 0]
            ngp.observe("y", f(X) if learnt is None else numpyro.distributions.Normal(
                f(X).mean + learnt(X).mean + at, 0.1), ngp.likelihoods.Gaussian(0.1), obs=y)  # fmt: skip

    guide = ngp.AutoGP(made)
    svi = SVI(made, guide, optax.sgd(0.01), Trace_ELBO())
    params = ngp.fit(KEY, svi, 1, X, Y, progress=False).params | {"w": jnp.asarray(1.3)}
    posterior = ngp.Posterior.from_svi(made, guide, params)
    posterior.predict(KEY, X, num_samples=1)
    predictor = posterior.predictor(KEY, num_samples=1)
    predictor(X)
    for ask in (lambda X: posterior.predict(KEY, X, num_samples=1), predictor):
        with pytest.raises(ValueError, match=f"{REFUSAL} 0.5 away"):
            ask(X + 0.5)


@pytest.mark.long
def test_members_that_were_not_in_the_fit_stand_at_inducing_inputs_of_their_own():
    def groups(X, Z, y=None):
        with numpyro.plate("group", len(Z), dim=-2):
            f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), Z)
            with numpyro.plate("data", len(X)):
                ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)

    posterior = ngp.Posterior.from_mcmc(groups, {"f": jnp.ones((1, 3, 1, 4))})
    posterior = dataclasses.replace(posterior, inducing={"f": {"": np.stack([Z, Z, Z])}})
    ask = lambda points, **new: posterior.predict(KEY, NEW, points, rows=["X"], **new).function_variance  # noqa: E731
    assert ask(np.stack([Z, Z, Z])).shape == (3, 3)
    with pytest.raises(ValueError, match=REFUSAL):
        ask(np.stack([Z, Z, OTHER]))
    np.testing.assert_allclose(ask(np.stack([Z, Z, OTHER]), new="group"), 1.0, rtol=1e-3)
