"""Running an engine: compiled steps, a stop with its reason, checkpoints. No model, guide or belief is known here."""

from numpyro_gp.training.checkpoints import FitResult
from numpyro_gp.training.fit import fit
from numpyro_gp.training.loop import FitInterrupted, NonFiniteLoss
from numpyro_gp.training.sampling import HMC, NUTS

__all__ = ["FitInterrupted", "FitResult", "HMC", "NUTS", "NonFiniteLoss", "fit"]
