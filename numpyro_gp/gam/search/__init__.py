"""The mode of the hyper-parameters: the bound, its slopes, and the engines that climb it."""
