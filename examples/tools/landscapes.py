"""Standard functions that optimisers are tried on, on the unit cube, to be maximised (Dixon and Szego 1978)."""

import numpy as np

__all__ = ["LANDSCAPES"]

WIDTHS = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
PEAKS = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def branin(x):
    """Minus Branin's function at two inputs; three optima of the same height."""
    a, b = 15 * x[0] - 5, 15 * x[1]
    return -((b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6) ** 2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10)


def hartmann(x):
    """Hartmann's function of six inputs; six local optima."""
    return np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-np.sum(WIDTHS * (x - PEAKS) ** 2, axis=1))


# Function, number of inputs and largest value.
LANDSCAPES = {"Branin": (branin, 2, -0.397887), "Hartmann-6": (hartmann, 6, 3.32237)}
