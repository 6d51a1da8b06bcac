"""Tests of the studies: they run where a study, its rows or a page of results changed (tests/conftest.py)."""
