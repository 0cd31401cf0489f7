"""Making and measuring the small model pair in ``examples/tiny-pair``."""
