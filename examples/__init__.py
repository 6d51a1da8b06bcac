"""Illustrations, `python -m examples.NAME`; experiments in `papers`, and what makes pages of them in `tools`."""
