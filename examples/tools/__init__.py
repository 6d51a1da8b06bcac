"""What programs share, and what makes pages of their rows."""
