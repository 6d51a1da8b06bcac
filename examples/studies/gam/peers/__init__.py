"""How ``ngp.gam`` is run beside mgcv and its peers in Python, each in an environment of its own: see ``__main__``."""
