"""Processes in time, or along any line, exact at a cost of rows (mathematics.md section 17)."""
