"""What rows given by neighbours depend on: their conditional, its factors, and data in their place."""
