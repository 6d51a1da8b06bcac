"""Answers after a fit: the model run again at draws of its posterior. Nothing is fitted here."""

from numpyro_gp.posterior.conditioned import conditioned
from numpyro_gp.posterior.fitted_pseudo_data import PseudoData, pseudo_data
from numpyro_gp.posterior.posterior import Posterior
from numpyro_gp.posterior.prediction import Prediction
from numpyro_gp.posterior.predictor import Predictor

__all__ = ["Posterior", "Prediction", "Predictor", "PseudoData", "conditioned", "pseudo_data"]
