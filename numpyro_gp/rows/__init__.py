"""Which rows belong to a batch, a plate, a device, a chunk: knows sites and programs.

``call`` is how a model is called, ``look`` what it does with its arguments, ``held`` a plate that holds some of its
rows, ``devices`` where rows lie, ``feeds`` where the arrays of a step come from, ``cuts`` what is cut into chunks.
"""
