"""Covariance functions: immutable pytrees with ``matrix(X1, X2)`` and ``diagonal(X)``.

Take `Matern52` where nothing is known, `RBF` where the function is very smooth, `Periodic` times one of them where it
repeats, `Linear` beside one of them for a trend, `Wiener` and `IntegratedWiener` for one that goes on in a forecast.
Kernels add, multiply and read chosen columns: ``k1 + k2``, ``k1 * k2``, ``2.0 * k``, ``k.on([0, 2])``.
Hyper-parameters are plain arrays: sample them in the model.
"""

from numpyro_gp.kernels.base import Active, FunctionKernel, Kernel, Product, Scaled, Sum, as_kernel
from numpyro_gp.kernels.features import features
from numpyro_gp.kernels.measures import Empirical, Gaussian, Uniform
from numpyro_gp.kernels.members import stack
from numpyro_gp.kernels.nonstationary import (
    ArcCosine,
    CategoryDelta,
    Constant,
    Coregion,
    Linear,
    Polynomial,
    ZeroMeanCategory,
)
from numpyro_gp.kernels.stationary import (
    RBF,
    SHO,
    Cosine,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SpectralMixture,
)
from numpyro_gp.kernels.trends import Centred, IntegratedOU, IntegratedWiener, Wiener
from numpyro_gp.kernels.varying import Gibbs, Modulated, change_points
from numpyro_gp.kernels.zero_mean import ZeroMean, ZeroMeanLinear

__all__ = ["Kernel", "RBF", "Matern12", "Matern32", "Matern52", "RationalQuadratic", "Periodic", "Cosine", "SHO"]
__all__ += ["Linear", "Polynomial", "Constant", "ArcCosine", "SpectralMixture", "CategoryDelta", "Coregion"]
__all__ += ["Wiener", "IntegratedWiener", "IntegratedOU", "Gibbs", "Modulated", "change_points"]
__all__ += ["ZeroMean", "Centred", "ZeroMeanCategory", "ZeroMeanLinear", "Uniform", "Gaussian", "Empirical"]
__all__ += ["Sum", "Product", "Scaled", "Active", "FunctionKernel", "as_kernel", "features", "stack"]
