"""A smooth function of eight inputs with its gradient, seen with noise at some points: in NumPy, for all libraries."""

import numpy as np

FACTORS, NOISE = np.linspace(1.5, 0.3, 8), 0.05


def value_and_gradient(X):
    """Values ``(N,)`` and gradients ``(N, 8)``."""
    x, y = X[:, 0], X[:, 1]
    values = np.sin(X @ FACTORS) + 0.5 * np.cos(2 * x * y) + 0.3 * X[:, 2] ** 2
    slopes = FACTORS * np.cos(X @ FACTORS)[:, None]
    slopes[:, 0] -= np.sin(2 * x * y) * y
    slopes[:, 1] -= np.sin(2 * x * y) * x
    slopes[:, 2] += 0.6 * X[:, 2]
    return values, slopes


def simulate(seed, num_data=60, num_test=500):
    """Inputs, values and gradients of ``num_data`` points, and inputs and values of others, all with the same noise."""
    rng = np.random.default_rng(seed)
    X, X_test = rng.uniform(-1, 1, (num_data, 8)), rng.uniform(-1, 1, (num_test, 8))
    y, slopes = (part + NOISE * rng.normal(size=part.shape) for part in value_and_gradient(X))
    return X, y, slopes, X_test, value_and_gradient(X_test)[0] + NOISE * rng.normal(size=num_test)


def row_of(seed, way, mean, deviation, y_test, noise, seconds):
    """Held-out scores of a prediction of noisy values."""
    z = (y_test - mean) / deviation
    density = np.mean(-0.5 * z**2 - np.log(deviation) - 0.5 * np.log(2 * np.pi))
    scores = {"log_density": density, "rmse": np.sqrt(np.mean((y_test - mean) ** 2)), "noise": noise}
    kept = {name: f"{value:.4f}" for name, value in scores.items()}
    return {"seed": seed, "way": way, **kept, "cpu_seconds": f"{seconds:.1f}"}
