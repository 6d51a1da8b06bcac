"""Running an engine: compiled steps, a stop with its reason, checkpoints. No model, guide or belief is known here."""

from numpyro_gp.training.checkpoints import FitResult
from numpyro_gp.training.fit import FitInterrupted, NonFiniteLoss, fit

__all__ = ["FitInterrupted", "FitResult", "NonFiniteLoss", "fit"]
