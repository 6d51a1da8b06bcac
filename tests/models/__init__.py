"""The parts that the gallery shows how to add, against closed forms."""
