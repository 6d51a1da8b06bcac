"""Experiments of one kind: `README.md` here says what to run."""
