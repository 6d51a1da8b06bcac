"""Rows and their nearest earlier rows: found once, before the model, and handed over as a value."""
