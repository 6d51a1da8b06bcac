"""Running an engine: compiled steps, a stop with its reason, checkpoints, and the result of a fit."""

from numpyro_gp.training.checkpoints import FitResult
from numpyro_gp.training.fit import fit
from numpyro_gp.training.loop import FitInterrupted, NonFiniteLoss
from numpyro_gp.training.sampling import HMC, NUTS

__all__ = ["FitInterrupted", "FitResult", "HMC", "NUTS", "NonFiniteLoss", "fit"]
