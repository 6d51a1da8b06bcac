"""Deep processes: `stack` builds all layers of one, and the values where single layers start, to build them by hand."""

from numpyro_gp.starting.deep.stack import (
    INNER_SCALE,
    DeepProcess,
    Layer,
    Stack,
    initial_layers,
    latent_columns,
    mix,
    principal_directions,
    stack,
)

__all__ = ["DeepProcess", "Layer", "Stack", "stack"]
__all__ += ["INNER_SCALE", "initial_layers", "latent_columns", "mix", "principal_directions"]
