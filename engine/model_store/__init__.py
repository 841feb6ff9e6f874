"""Where a model comes from: the default one (fetched and converted once), a folder, a file, a Hub id.

Owns the model part of the cache folder. Imports no torch: the conversion runs in a process of its own.
"""

from engine.model_store.bundle import DEFAULT_MODEL, BundledModel
from engine.model_store.cache import cache_root
from engine.model_store.resolve import ResolvedModel, is_ready, resolve

__all__ = ["DEFAULT_MODEL", "BundledModel", "ResolvedModel", "cache_root", "is_ready", "resolve"]
