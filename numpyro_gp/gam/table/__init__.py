"""A formula and a table: its terms, and the columns that they read."""
