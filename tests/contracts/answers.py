"""The relations that must hold between the answers of a posterior, on every model; they join those of `relations.py`."""

import dataclasses
import pickle
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.infer import Predictive

import numpyro_gp as ngp
from tests.contracts.descriptions import CLOSURES
from tests.contracts.models import ROWS, Case, build
from tests.contracts.relations import KEY, RELATIONS, bound, differentiated, reference, relation, same

__all__ = ["RELATIONS"]


def fitted(case: Case) -> ngp.Posterior:
    """The posterior of the guide."""
    return ngp.Posterior.from_svi(case.model, case.guide, case.constrained)


def sampled(case: Case) -> ngp.Posterior:
    """The posterior of a chain."""
    return ngp.Posterior.from_mcmc(case.model, case.draws)


def posterior_of(case: Case, kind: str) -> ngp.Posterior:
    return fitted(case) if kind == "svi" else sampled(case)


def asked(case: Case, posterior: ngp.Posterior, new: Any = None, **options: Any) -> ngp.Prediction:
    """The prediction at new inputs, of the process whose data the model holds or of the data of the model."""
    new = case.new if new is None else new
    if case.description.is_conditioned:
        return posterior.predict_at(KEY, new["X"], **options, **case.data)
    return posterior.predict(KEY, **options, **new)


def moments(found: ngp.Prediction) -> dict[str, Any]:
    """All moments of a prediction."""
    return {name: getattr(found, name) for name in ("mean", "variance", "function_mean", "function_variance")}


def predicted(case: Case, posterior: ngp.Posterior, new: Any = None, **options: Any) -> dict[str, Any]:
    """Moments of a prediction."""
    return moments(asked(case, posterior, new, **options))


def prediction(case: Case, kind: str) -> ngp.Prediction:
    """The prediction in one chunk, computed once for each model."""
    if kind not in case.found:
        case.found[kind] = asked(case, posterior_of(case, kind))
    return case.found[kind]


def whole(case: Case, kind: str) -> dict[str, Any]:
    """Moments of the prediction in one chunk."""
    return moments(prediction(case, kind))


def kind_of(case: Case) -> str:
    """The engine whose posterior is asked, of half of the models each."""
    return "mcmc" if case.description.seed % 2 else "svi"


@relation()
def numpy_inputs_are_jax_inputs(case: Case) -> None:
    """In the bound, and in predictions from a guide or from a chain."""
    data = jax.tree.map(np.asarray, case.data)
    same(bound(case)(case.params, data), reference(case)[0])
    new, draws, params = jax.tree.map(np.asarray, (case.new, case.draws, case.constrained))
    kind = kind_of(case)
    source = (case.guide, params) if kind == "svi" else (draws,)
    posterior = (ngp.Posterior.from_svi if kind == "svi" else ngp.Posterior.from_mcmc)(case.model, *source)
    same(predicted(case, posterior, new), whole(case, kind))


@relation()
def renamed_sites_rename_results(case: Case) -> None:
    """Parameters, bound, gradient and predictions."""
    _check_renamed(case, build(case.description, prefix="other_"))


@relation()
def scoped_is_unscoped(case: Case) -> None:
    """The whole model under a scope (item 5)."""
    _check_renamed(case, build(case.description, before="top/"))


def _check_renamed(case: Case, other: Case) -> None:
    (value, gradient), (wanted, slope) = differentiated(other), reference(case)
    named = dict(zip(other.names, (gradient[name] for name in other.params), strict=True))
    same((value, named), (wanted, dict(zip(case.names, (slope[name] for name in case.params), strict=True))))
    kind = kind_of(case)
    same(predicted(other, posterior_of(other, kind)), whole(case, kind))


@relation(lambda d: not d.is_deep)  # noise of function draws has the keys of one model, and of two
def a_model_beside_another_is_that_model_alone(case: Case) -> None:
    """The same model under two scopes, with other draws and other data in each (item 5)."""
    target = f"{case.scope}target"

    def two(y: Any = None, **data: Any) -> None:
        with handlers.scope(prefix="left"):
            case.model(y=y, **data)
        with handlers.scope(prefix="right"):
            case.model(y=None if y is None else y[..., ::-1], **data)

    draws = {f"{at}/{name}": x[::step] for at, step in (("left", 1), ("right", -1)) for name, x in case.draws.items()}
    posterior = ngp.Posterior.from_mcmc(two, draws)
    sites = {"gp" if case.description.is_conditioned else "site": f"left/{target}"}
    same(predicted(case, posterior, **sites), whole(case, "mcmc"))


@relation(lambda d: d.has_rows and not d.is_deep)  # each chunk of a deep model has its own noise
def permuted_rows_permute_predictions(case: Case) -> None:
    order, kind = np.random.default_rng(3).permutation(ROWS), kind_of(case)
    expected = jax.tree.map(
        lambda leaf: leaf[:, order] if case.description.is_grouped else leaf[order], whole(case, kind)
    )
    same(predicted(case, posterior_of(case, kind), case.taken(case.new, order)), expected)


@relation(lambda d: not d.is_deep and d.inducing == "Z")
def chunked_is_whole(case: Case) -> None:
    """A likelihood that takes an exposure reads a second argument with a row for each datum (item 4)."""
    if case.description.process in ("one", "additive"):
        case = build(case.description, likelihood="exposed")
    kind = kind_of(case)
    same(predicted(case, posterior_of(case, kind), chunk_size=4 if kind == "svi" else 1), whole(case, kind))


@relation()
def saved_is_loaded(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "posterior.npz"
        fitted(case).save(path)
        again = ngp.Posterior.load(path, case.model, case.guide)
        same(again.params, case.constrained)
        sampled(case).save(path)
        same(ngp.Posterior.load(path, case.model).samples, case.draws)
        kind = kind_of(case)
        same(predicted(case, again if kind == "svi" else ngp.Posterior.load(path, case.model)), whole(case, kind))


@relation(lambda d: d.kernel != "callable")
def pickled_is_itself(case: Case) -> None:
    """Posteriors with their model and guide, and predictions; not kernels or likelihoods that a model defines inside."""
    kind = kind_of(case)
    again = pickle.loads(pickle.dumps(posterior_of(case, kind)))
    same(predicted(case, again), whole(case, kind))
    if case.description.likelihood not in CLOSURES:
        same(moments(pickle.loads(pickle.dumps(prediction(case, kind)))), whole(case, kind))


@relation(lambda d: not d.is_conditioned)
def a_belief_that_delegates_is_its_delegate(case: Case) -> None:
    """Bound, gradient, predictions, draws of the whitened values and pointwise log likelihood (item 2)."""
    case, other = (build(case.description, belief=belief) for belief in ("own", "coupled"))
    same(reference(other), reference(case))
    same(whole(other, "svi"), whole(case, "svi"))
    mine, its = (fitted(one).draws(KEY, num_samples=2, **one.data) for one in (case, other))
    # The factor of the whitened values is found by a Cholesky of what is near singular where the scale is small.
    same((mine.latent, mine.log_likelihood), (its.latent, its.log_likelihood), rtol=1e-5, atol=1e-5)


@relation(lambda d: not d.is_conditioned)
def draws_of_any_belief_have_a_term_for_each_datum(case: Case) -> None:
    found = fitted(case).draws(KEY, num_samples=2, **case.data)
    (terms,) = found.log_likelihood.values()
    (data,) = found.observed.values()
    axes = 1 if case.description.process == "outputs" and data.ndim == 2 else 0  # outputs of a datum are one term
    assert terms.shape == (2, *data.shape[: data.ndim - axes])
    assert np.isfinite(terms).all()
    assert (terms[0] != terms[1]).any(), "draws of a belief differ"


@relation(lambda d: d.has_rows and not d.is_deep)
def masked_rows_have_no_terms(case: Case) -> None:
    """Pointwise log likelihoods and observed data are those of the rows that are left (item 12)."""
    case = build(dataclasses.replace(case.description, around="mask"))
    left = {name: value for name, value in case.taken(case.data, slice(ROWS - 2)).items() if name != "seen"}
    masked, kept = (sampled(case).draws(KEY, **data) for data in (case.data, left))
    found, left = ((draws.log_likelihood, draws.observed) for draws in (masked, kept))
    same(jax.tree.map(np.ravel, found), jax.tree.map(np.ravel, left))


@relation(lambda d: not d.is_conditioned and not d.is_deep)
def all_answers_tell_one_story(case: Case) -> None:
    """``predict``, ``to_arviz`` and NumPyro's ``Predictive``, of the same draws at the same data."""
    d, posterior = case.description, sampled(case)
    at_data = {name: value for name, value in case.data.items() if name not in ("y", "seen")}
    y, target = case.data["y"], f"{case.scope}{case.prefix}target"
    found, tree = posterior.predict(KEY, **at_data), posterior.to_arviz(KEY, **at_data, y=y)
    terms = np.asarray(tree["log_likelihood"][target])[0]
    each = y if d.plates == "replicates" else y[None]
    density = np.stack([np.asarray(found.log_density(one)) for one in each])
    same(logsumexp(terms, axis=0).reshape(density.shape) - np.log(len(terms)), density)
    place = f"{case.scope}{case.prefix}location"
    drawn = Predictive(case.model, posterior_samples=case.draws)(KEY, **at_data)[place]
    same(drawn.mean(0), _first(case, found.function_mean))
    same(np.asarray(tree["posterior"][place])[0], drawn)
    by_guide = Predictive(case.model, guide=case.guide, params=case.constrained, num_samples=1)(KEY, **at_data)[place]
    same(by_guide[0], _first(case, fitted(case).predict(KEY, **at_data).function_mean))


def _first(case: Case, values: Any) -> Any:
    """Of several functions the first."""
    return values[..., 0] if case.description.process in ("two", "three") else values


@relation(lambda d: d.plates == "data" and not d.is_deep)
def compare_scores_the_predictions(case: Case) -> None:
    """Log density and, of points, the same LOO as ArviZ finds in `to_arviz`."""
    d, y = case.description, case.data["y"]
    options: dict[str, Any] = {"train": case.data}
    if d.is_conditioned:
        options["at"] = case.new["X"]
        table = ngp.compare({"it": sampled(case)}, KEY, **case.data, **options)
    else:
        table = ngp.compare({"it": sampled(case)}, KEY, **case.new, y=y, **options)
    expected = prediction(case, "mcmc").log_density(y).mean()
    np.testing.assert_allclose(table["it"]["log density"].value, expected, rtol=1e-6)
