"""Gaussian processes as first-class citizens of NumPyro.

One model function with `gp` sites runs unchanged under SVI, SVGD and NUTS; see the README.

What calls what, from the outside in; names are below this package, or NumPyro's. ``programs`` holds what is compiled
and kept, ``rows`` which rows belong to a batch, a plate, a device or a chunk.

A fit finds where its arrays come from and a first state, and compiles the program of one step, once for all that
compute the same; a training step of SVI draws beliefs in the guide, runs the model on them, and climbs the bound:
    fit -> rows.feeds.feed_of -> training.first_state.initial_state -> programs.set_up.in_one_program
    -> programs.trace.traced -> programs.compiled.kept -> rows.feeds.Feed.opened
    -> numpyro.infer.SVI.update -> AutoGP.__call__ -> guides.coupled -> gp -> beliefs.Basis.build
    -> GaussianProcess.__call__ -> beliefs.Coupled.marginals -> observe -> sites.Observation.log_prob
    -> likelihoods.Likelihood.expected_log_prob -> sites.InducingPrior.log_prob -> beliefs.Coupled.kl
    -> optim.natural_gradient
A prediction looks at the model, cuts the rows, runs it on draws of the posterior, and mixes what it observes:
    Posterior.predict -> rows.call.call_of -> rows.model_trace.look -> rows.batches.rows_to_cut
    -> posterior.chunks.predict_chunks -> programs.trace.split -> posterior.tracing.trace_at -> gp
    -> GaussianProcess.__call__ -> observe -> sites.Observation -> Prediction.log_density
    -> sites.Observation.predictive_log_prob -> likelihoods.Likelihood.predictive_log_prob
A Stein step takes the score of each particle, a point at every site, and moves all by their common force:
    fit -> stein.SVGD.update -> stein.target.scores_of_particles -> stein.target.Target.log_density -> gp
    -> GaussianProcess.__call__ -> beliefs.Point.marginals -> observe -> sites.Observation.log_prob -> stein.forces
    -> stein.RBF.profile
An importance-weighted step draws the latent inputs of each datum K times, and averages inside the logarithm:
    fit -> numpyro.infer.SVI.update -> ImportanceWeightedELBO.loss_with_mutable_state
    -> objectives.weighted_samples -> guides.amortised -> latent_inputs -> GaussianProcess.draw
    -> sites.Observation.log_prob -> objectives.importance_weighted_bound
"""

import sys
from functools import partial
from inspect import ismodule

from numpyro_gp import beliefs, gam, guides, kernels, likelihoods, means, optim, plots, starting, stein
from numpyro_gp.additive import anova, effects, sobol
from numpyro_gp.criticism import Comparison, compare, conditional_density, diagnose, metrics
from numpyro_gp.guides import AutoGP
from numpyro_gp.neighbours.value import Neighbours, neighbours
from numpyro_gp.objectives import ImportanceWeightedELBO
from numpyro_gp.plots.terms import plot_effects
from numpyro_gp.posterior import Posterior, Prediction, Predictor, PseudoData, conditioned, pseudo_data
from numpyro_gp.primitives import functionals
from numpyro_gp.primitives.gp import AdditiveGP, additive_gp, gp
from numpyro_gp.primitives.lines.value import Line, line
from numpyro_gp.primitives.observe import latent_inputs, noisy_inputs, observe
from numpyro_gp.primitives.point_pattern import point_pattern, thinned
from numpyro_gp.primitives.process import GaussianProcess
from numpyro_gp.primitives.recall import recall
from numpyro_gp.primitives.regression import gp_regression
from numpyro_gp.programs.scheduler import choose_scheduler
from numpyro_gp.sites import Belief
from numpyro_gp.starting import deep, inducing
from numpyro_gp.training import HMC, NUTS, FitInterrupted, FitResult, NonFiniteLoss, fit

__version__ = "0.3.0"

__all__ = [
    "AdditiveGP",
    "AutoGP",
    "Belief",
    "Comparison",
    "FitInterrupted",
    "FitResult",
    "GaussianProcess",
    "HMC",
    "ImportanceWeightedELBO",
    "Line",
    "NUTS",
    "Neighbours",
    "NonFiniteLoss",
    "Posterior",
    "Prediction",
    "Predictor",
    "PseudoData",
    "additive_gp",
    "anova",
    "beliefs",
    "compare",
    "conditional_density",
    "conditioned",
    "deep",
    "diagnose",
    "effects",
    "fit",
    "functionals",
    "gam",
    "gp",
    "gp_regression",
    "guides",
    "inducing",
    "kernels",
    "latent_inputs",
    "likelihoods",
    "line",
    "means",
    "metrics",
    "neighbours",
    "noisy_inputs",
    "observe",
    "optim",
    "plot_effects",
    "plots",
    "point_pattern",
    "pseudo_data",
    "recall",
    "sobol",
    "starting",
    "stein",
    "thinned",
]

choose_scheduler()


def __dir__() -> list[str]:
    return sorted(__all__)


# Every module that users see can be imported by the name they see, as ``numpyro_gp.sobol``; ``dir`` shows public names.
for _name, _module in [(_name, globals()[_name]) for _name in __all__ if ismodule(globals()[_name])]:
    sys.modules[f"{__name__}.{_name}"] = _module
    _module.__dir__ = partial(sorted, _module.__all__)
