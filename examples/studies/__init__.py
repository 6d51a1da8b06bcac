"""Experiments behind the pages of results: program, rows and picture of each in one folder."""
