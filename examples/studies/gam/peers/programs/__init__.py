"""One small task as a program for each library: curves of four columns, from a file to a table, a figure and intervals.

Each reads ``train.csv`` and ``test.csv``, fits a curve for every column, prints what the library says of the terms,
draws them with 90 % bands, and writes the mean and 90 % interval of each new row to ``predicted.csv``.
"""
