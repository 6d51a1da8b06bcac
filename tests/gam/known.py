"""Fits whose draws are made up: no engine is run, and every number of a likelihood is known."""

import jax
import numpy as np

import numpyro_gp as ngp
from numpyro_gp.gam.draws import Draws
from numpyro_gp.gam.term_features import TermFeatures
from numpyro_gp.gam.term_posteriors import Point


def draws_of(model, likelihood, size=2, seed=0):
    """Draws with points for the whitened values; leaves of the likelihood have the draws on their first axis."""
    rng, term_features = np.random.default_rng(seed), TermFeatures(model)
    lengths = sum(len(part.term.columns) for part in model.layout.read_terms if part.term.kind in ("s", "te", "ti"))
    points = [Point(0.5 * rng.normal(size=model.size)) for _ in range(size)]
    scales = rng.uniform(0.3, 0.6, (size, len(term_features.sizes)))
    return Draws(scales, np.ones((size, lengths)), likelihood, {}, points, None), term_features


def repeated(likelihood, size=2):
    """A likelihood that is the same at each draw."""
    return jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf, float)[None], size, axis=0), likelihood)


def fit_of(model, likelihood, size=2):
    """A fit with these draws and no posterior."""
    fit = ngp.gam.Fit(model, None, None, None, "nuts", size, (), jax.random.key(0))
    draws, term_features = draws_of(model, likelihood, size)
    vars(fit).update(_drawn={None: draws}, _term_features=term_features)
    return fit
