"""Which rows belong to a batch, a plate, a device, a chunk: knows sites and programs.

``call`` is how a model is called, ``model_trace`` what it does with its arguments, ``row_readers`` what a program does
with rows, ``batch_plates`` a plate that holds some of its rows, ``devices`` where rows lie, ``feeds`` where the arrays
of a step come from, ``batches`` how rows are cut into parts.
"""
