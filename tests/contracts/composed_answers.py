"""Relations of what a composed model predicts, and of its fits; they join those of `composed_bounds.py`."""

import pickle
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.infer import Predictive

import numpyro_gp as ngp
from tests.contracts import dense
from tests.contracts.composed_bounds import NET, is_dense, log_priors, relation
from tests.contracts.composed_case import KEY, Case, arrays, program, same
from tests.contracts.compositions import NOISY, ROWS, Delegating

__all__ = ["NET"]

# Where the bound is the marginal likelihood at the optimum.
EXACT = (("gaussian", "coupled"), ("gaussian", "natural"))


@relation(lambda c: is_dense(c) and c.is_full and not c.is_scaled and (c.likelihood, c.belief) in EXACT)
def inducing_inputs_at_all_rows_are_exact(case: Case) -> None:
    """At the optimum the bound is the marginal likelihood, and the prediction that of the dense posterior."""
    c, hyper, data = case.c, case.hyper(), case.data
    process, variance = dense.Process(c, data["X"], data["Z"], hyper), hyper["noise"] ** 2
    seen = data["table"]["seen"] if c.is_masked else np.ones(ROWS, bool)
    shift = data["table"]["offset"] if c.has_offset else 0.0
    residual = (data["y"] - dense.mean(c, data["X"]) - shift)[seen]
    K = process.k(data["X"], data["X"])[np.ix_(seen, seen)] + variance * np.eye(seen.sum())
    A = process.A[:, seen]
    precision = np.eye(ROWS) + A @ A.T / variance
    moments_of = {"mean": np.linalg.solve(precision, A @ residual) / variance, "precision": precision}
    moments_of["scale_tril"] = np.linalg.cholesky(np.linalg.inv(precision))
    moments_of["shift"] = A @ residual / variance
    own = {name: moments_of[name.split("/")[-1].removeprefix("ngp:natural_")] for name in case.params if "f/" in name}
    params = {**case.params, **own}
    exact = -0.5 * (residual @ np.linalg.solve(K, residual) + np.linalg.slogdet(2 * np.pi * K)[1])
    loss = program(case.model, case.guide)(*arrays((params, {}, data)), None)
    np.testing.assert_allclose(-loss, exact + sum(log_priors(c, hyper).values()), rtol=1e-3)
    new = case.new
    found = ngp.Posterior.from_svi(case.model, case.guide, arrays(params)).predict(KEY, **arrays(new))
    cross = process.k(data["X"][seen], new["X"])
    mean = dense.mean(c, new["X"]) + cross.T @ np.linalg.solve(K, residual)
    mean = mean + (new["table"]["offset"] if c.has_offset else 0.0)
    spread = np.diag(process.k(new["X"], new["X"]) - cross.T @ np.linalg.solve(K, cross))
    np.testing.assert_allclose(found.function_mean, mean, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found.variance, spread + variance, rtol=1e-3, atol=1e-3)


@relation(lambda c: is_dense(c) and c.reads == "values")
def predictions_are_dense(case: Case) -> None:
    """Moments of function and data, and the log density of data, of the belief or of points as a chain has them."""
    c, new = case.c, case.new
    y = case.made_up(ROWS)["y"]
    y = np.clip(y, new["table"]["lower"], new["table"]["lower"] + 0.8) if c.likelihood == "interval" else y
    shift = new["table"]["offset"] if c.has_offset else 0.0
    if c.seed % 2 and c.hyper != "param":
        found = ngp.Posterior.from_mcmc(case.model, case.sampled).predict(KEY, **arrays(new))
        (draws, v), each = case.chain, []
        for at in range(3):
            hyper = {name: value[at] for name, value in draws.items()}
            own = dense.Process(c, new["X"], case.data["Z"], hyper)
            each.append((*own.covered(v[at], np.zeros((len(v[at]),) * 2)), hyper["noise"]))
    else:
        found, hyper = case.posterior.predict(KEY, **arrays(new)), case.hyper()
        process = dense.Process(c, new["X"], case.data["Z"], hyper)
        each = [(*process.belief(c.belief, case.of_belief, case.others)[:2], hyper["noise"])]
    means = np.stack([mean + shift for mean, _, _ in each])
    variance = np.mean([spread for _, spread, _ in each], axis=0) + means.var(0)
    np.testing.assert_allclose(found.function_mean, means.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.function_variance, variance, rtol=1e-4, atol=1e-5)
    at = [(m + np.sqrt(s) * dense.NODES[:, None], noise) for m, (_, s, noise) in zip(means, each, strict=True)]
    average = lambda values: np.mean([dense.WEIGHTS @ one for one in values], axis=0)  # noqa: E731
    density = average([np.exp(dense.log_density(c.likelihood, y, f, noise, new["table"])) for f, noise in at])
    np.testing.assert_allclose(found.log_density(y), np.log(density), rtol=1e-3, atol=1e-3)
    hidden = ("censored", "interval", "truncated")  # moments are those of the values themselves
    name = "gaussian" if c.likelihood in hidden else c.likelihood
    centre, spread = zip(*[dense.moments(name, f, noise) for f, noise in at], strict=True)
    mean = average(centre)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(
        found.variance, average([s + (m - mean) ** 2 for m, s in zip(centre, spread)]), rtol=1e-3
    )


def moments(found: Any) -> dict[str, np.ndarray]:
    return {
        name: np.asarray(getattr(found, name)) for name in ("mean", "variance", "function_mean", "function_variance")
    }


@relation()
def a_store_gives_the_same_numbers(case: Case) -> None:
    """A saved posterior, and a pickled one: but where NumPyro's guide was set up inside of a trace, as here."""
    posterior, new = case.posterior, arrays(case.new)
    expected = moments(posterior.predict(KEY, **new))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "posterior.npz"
        posterior.save(path)
        again = ngp.Posterior.load(path, case.model, case.guide)
    same(moments(again.predict(KEY, **new)), expected)
    if case.c.hyper == "sampled":
        return
    same(moments(pickle.loads(pickle.dumps(posterior)).predict(KEY, **new)), expected)


@relation()
def numpy_arrays_are_jax_arrays(case: Case) -> None:
    """Parameters of a fit, and arguments of a prediction."""
    posterior = ngp.Posterior.from_svi(case.model, case.guide, case.params)
    same(moments(posterior.predict(KEY, **case.new)), moments(case.posterior.predict(KEY, **arrays(case.new))))


@relation(lambda c: c.rest == "delta")
def a_scope_renames_what_is_inside(case: Case) -> None:
    """Parameters; bound and predictions stay."""
    model = handlers.scope(case.model, prefix="top")
    guide = case.new_guide(model, scope="top/")
    jax.eval_shape(lambda: handlers.seed(guide, 1)(**arrays(case.data)))
    params, noise = ({f"top/{name}": value for name, value in own.items()} for own in (case.params, case.noise))
    same(program(model, guide)(*arrays((params, noise, case.data)), None), case.value)
    if case.c.process in NOISY:
        return
    found = ngp.Posterior.from_svi(model, guide, arrays(params)).predict(KEY, **arrays(case.new))
    same(moments(found), moments(case.posterior.predict(KEY, **arrays(case.new))))


@relation(lambda c: c.process in ("one", "groups", "outputs", "two", "additive", "deep") and c.rest == "delta")
def a_belief_that_delegates_is_its_delegate(case: Case) -> None:
    """One of the user's own with nothing but the methods of `AbstractBelief`, which asks another for all of them."""
    case = Case(case.c._replace(belief="coupled"))
    guide = case.new_guide(recipe=lambda name, prior: Delegating(ngp.guides.coupled()(name, prior)))
    jax.eval_shape(lambda: handlers.seed(guide, 1)(**arrays(case.data)))
    same(program(case.model, guide)(*arrays((case.params, case.noise, case.data)), None), case.value)
    if case.c.process == "deep":
        return
    posterior, new = ngp.Posterior.from_svi(case.model, guide, arrays(case.params)), arrays(case.new)
    same(moments(posterior.predict(KEY, **new)), moments(case.posterior.predict(KEY, **new)))


@relation(lambda c: c.process != "latent")
def draws_of_any_belief_have_a_term_for_each_datum(case: Case) -> None:
    """That is seen, and differ."""
    c, found = case.c, case.posterior.draws(KEY, num_samples=2, **arrays(case.data))
    (terms,) = (np.asarray(own).reshape(2, -1) for own in found.log_likelihood.values())
    seen = case.data["table"]["seen"].sum() if c.is_masked else ROWS
    assert terms.shape[1] == seen * (2 if case.model.is_wide else 1)  # outputs of a datum are one term
    assert np.isfinite(terms).all()
    assert (terms[0] != terms[1]).any()


@relation(lambda c: is_dense(c) and c.hyper != "param" and not c.is_masked and c.likelihood != "interval")
def all_answers_tell_one_story(case: Case) -> None:
    """``predict``, ``to_arviz``, ``compare``, a model of two, and NumPyro's ``Predictive``, of the same draws."""
    data, y = arrays({name: value for name, value in case.data.items() if name != "y"}), jnp.asarray(case.data["y"])
    posterior = ngp.Posterior.from_mcmc(case.model, case.sampled)
    found, tree = posterior.predict(KEY, **data), posterior.to_arviz(KEY, **data, y=y)
    terms, density = np.asarray(tree["log_likelihood"]["y"])[0], found.log_density(y)
    same(logsumexp(terms, axis=0) - np.log(3), np.asarray(density))
    table = ngp.compare({"it": posterior}, KEY, **data, y=y, train={**data, "y": y})
    np.testing.assert_allclose(table["it"]["log density"].value, density.mean(), rtol=1e-6)
    location = Predictive(case.model, posterior_samples=case.sampled)(KEY, **data)["location"]
    shift = case.data["table"]["offset"] if case.c.has_offset else 0.0
    same(np.asarray(location.mean(0)) + shift, np.asarray(found.function_mean))
    same(np.asarray(tree["posterior"]["location"])[0], np.asarray(location))

    def two(y: Any = None, **data: Any) -> None:
        with handlers.scope(prefix="left"):
            case.model(y=y, **data)
        with handlers.scope(prefix="right"):
            case.model(y=None if y is None else y[::-1], **data)

    draws = {f"{at}/{name}": x[::step] for at, step in (("left", 1), ("right", -1)) for name, x in case.sampled.items()}
    same(moments(ngp.Posterior.from_mcmc(two, draws).predict(KEY, site="left/y", **data)), moments(found))


@relation(lambda c: c.process not in ("deep", "latent"))  # each chunk has noise of its own
def chunks_and_streams_equal_the_whole(case: Case) -> None:
    posterior, new = case.posterior, case.new
    expected = moments(posterior.predict(KEY, **arrays(new)))
    rows = ["X", "table"] if case.c.is_full else None  # inducing inputs are as many
    same(moments(posterior.predict(KEY, chunk_size=5, rows=rows, **arrays(new))), expected)
    given, ends = {name: new[name] for name in ("X", "table")}, ((0, 7), (7, ROWS))
    parts = [jax.tree.map(lambda leaf, a=a, b=b: leaf[a:b], given) for a, b in ends]
    stream = ((arrays(part["X"]), arrays(part["table"])) for part in parts)
    found = [moments(part) for part in posterior.predict(KEY, stream, Z=jnp.asarray(new["Z"]))]
    axis = 1 if case.c.process in ("groups", "own rows") else 0
    same(jax.tree.map(lambda *own: np.concatenate(own, axis), *found), expected)


@relation(share=0.3)  # its programs take the longest
def two_fits_of_one_guide_equal_two_guides(case: Case) -> None:
    """The second on other data, of other rows; the first still predicts as the first."""
    guide = case.new_guide()
    fewer = 0 if case.c.process == "latent" else 2 * (case.c.seed % 2)  # such a guide is made for its rows, and says so
    second = {**case.made_up(ROWS - fewer), "Z": case.data["Z"]}

    def fitted(guide: Any, data: Any) -> Any:
        svi = case.svi(guide)
        result = ngp.fit(KEY, svi, 3, **arrays(data), progress=False)
        return ngp.Posterior.from_svi(case.model, guide, result.params), np.asarray(result.losses)

    (first, _), (again, losses) = fitted(guide, case.data), fitted(guide, second)
    (fresh, of_fresh), (alone, _) = fitted(case.new_guide(), second), fitted(case.new_guide(), case.data)
    same(losses, of_fresh)
    new = arrays(case.new)
    for one, two in ((again, fresh), (first, alone)):
        same(moments(one.predict(KEY, num_samples=2, **new)), moments(two.predict(KEY, num_samples=2, **new)))


@relation(lambda c: c.process != "latent", share=0.15)
def a_stream_of_all_rows_is_a_fit(case: Case) -> None:
    """Batches that are the whole data, as numbers of NumPy, and the data as arguments."""
    data, losses = case.data, []
    for is_stream in (True, False):
        svi = case.svi(case.new_guide())
        batch = {name: value for name, value in data.items() if name != "Z"}
        given = {"batches": [batch], "num_data": ROWS} if is_stream else arrays(batch)
        losses.append(ngp.fit(KEY, svi, 2, **given, Z=jnp.asarray(data["Z"]), progress=False).losses)
    same(losses[0], losses[1], rtol=1e-6)
