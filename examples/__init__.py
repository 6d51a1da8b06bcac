"""Illustrations, `python -m examples.NAME`; studies by subject in `studies`, what both share in `tools`."""
