"""The gallery: one file for each kind of model, written to be copied; each has `model`, `simulate` and `engine`."""
