"""Stein variational gradient descent: particles over a model's latent sites, in unconstrained coordinates.

`SVGD` takes the place of ``numpyro.contrib.einstein.SVGD``, with the same calls. It targets the
posterior itself: the log-Jacobian of constrained sites is counted.
"""

from numpyro_gp.stein.auto import auto
from numpyro_gp.stein.diagnostics import Paths, ksd, particle_paths, plot_paths, plot_spread
from numpyro_gp.stein.direction import forces, svgd_direction
from numpyro_gp.stein.kernels import IMQ, RBF, Groups, Moments, PerSite
from numpyro_gp.stein.metric import Curvature, Spread
from numpyro_gp.stein.particles import Around
from numpyro_gp.stein.svgd import SVGD
from numpyro_gp.stein.weights import Weights, weights

__all__ = ["SVGD", "auto", "Around", "RBF", "IMQ", "PerSite", "Groups", "Moments", "Curvature", "Spread"]
__all__ += ["svgd_direction", "forces", "ksd", "Weights", "weights"]
__all__ += ["Paths", "particle_paths", "plot_paths", "plot_spread"]
