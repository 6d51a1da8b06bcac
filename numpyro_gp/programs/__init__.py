"""What is compiled, kept and run at once: knows JAX and NumPyro's handlers, and no model.

``trace`` makes a program of a function, ``keep`` compiles it once for all that compute the same, ``set_up`` runs what
NumPyro runs eagerly as one program, ``eager`` does so for a single statement of a model, ``scheduler`` chooses how XLA
runs them where one way can stop for ever, ``private`` holds all that is relied on inside of NumPyro and JAX,
``files`` are arrays on disk.
"""
