"""Figures of a fit: functions with bands, calibration, hyper-parameters, convergence, particles, deep layers.

Each function draws one thing on one matplotlib ``Axes`` (a new one unless ``ax`` is given) and returns it, `surface`
on two, so that a figure is composed as usual: ``fig, axes = plt.subplots(1, 3)``. Colours are those of Okabe and Ito,
told apart by colour-blind readers; series also differ in line style and marker, so that a grey print can be read.
Matplotlib is imported when a figure is drawn, not with the library.
"""

from numpyro_gp.plots.fits import calibration, convergence, hyperparameters, particles, ranks
from numpyro_gp.plots.functions import function, layers, surface, survival
from numpyro_gp.plots.style import COLOURS, STYLES

__all__ = [
    "COLOURS",
    "STYLES",
    "calibration",
    "convergence",
    "function",
    "hyperparameters",
    "layers",
    "particles",
    "ranks",
    "surface",
    "survival",
]
