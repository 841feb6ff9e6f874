"""A small continuous-batching engine that records every step. Imports no torch and no screen."""
