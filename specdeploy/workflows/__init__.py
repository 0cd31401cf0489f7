"""One verb per module; they depend on ports, never on adapters."""
