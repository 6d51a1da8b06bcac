"""The additive model of a formula and a table: family, kernels, features, hyper-parameters."""
