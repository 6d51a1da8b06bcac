"""Processes that are given nearest neighbours, as a user calls them inside of a model."""
