"""Runnable experiments: python -m examples.NAME."""
