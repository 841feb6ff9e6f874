"""A running engine's figures for a Prometheus server, under the field's names (vLLM's, `cbtui:` before them).

`totals` folds the records, `families` gives the totals their names, `server` answers over HTTP. Reads
the stream of records alone, in threads of its own: the engine hands each record over and goes on.
"""

from engine.prometheus.server import MetricsError, MetricsServer

__all__ = ["MetricsError", "MetricsServer"]
