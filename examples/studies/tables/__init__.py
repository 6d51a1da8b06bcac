"""Makes the tables of the pages, and the numbers in their words, from rows."""
