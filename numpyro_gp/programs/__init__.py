"""What is compiled, kept and run at once: knows JAX and NumPyro's handlers, and no model.

``trace`` makes a program of a function, ``compiled`` compiles it once for all that compute the same, and a statement of
a model as one program, ``set_up`` does so for all that NumPyro runs eagerly, ``scheduler`` tells XLA with what effort
and in which order, and chooses a way that cannot stop for ever, ``handler_lock`` lets one thread trace at a time and
shortens errors, ``private`` holds all that is relied on inside of NumPyro and JAX, ``files`` are arrays on disk.
"""
