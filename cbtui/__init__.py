"""The terminal app: screens and commands over the engine's records. Knows nothing of tensors."""

__version__ = "0.1.0"
