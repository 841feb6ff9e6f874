"""Runs llama.cpp's own HTTP server (out of the wheel `xllamacpp`) until its standard input is closed.

    python llama_server.py MODEL.gguf --slots 3 --ctx 1024

Prints the address it listens on as a line of its own.
"""

from __future__ import annotations

import argparse
import os
import sys


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--slots", type=int, default=3)
    parser.add_argument("--ctx", type=int, default=1024, help="tokens a slot")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--no-metrics", action="store_true")
    parser.add_argument("--api-key", default="")
    parser.add_argument("--sleep-idle-s", type=int, default=-1)
    parser.add_argument("--shift", action="store_true", help="drop the oldest of a full context")
    parser.add_argument("--pooling", action="store_true", help="embeddings, and nothing else")
    asked = parser.parse_args()
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = asked.model
    params.n_parallel = asked.slots
    params.n_ctx = asked.ctx * asked.slots
    params.kv_unified = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = asked.threads
    params.n_threads_http = 8
    params.hostnames = ["127.0.0.1"]
    params.port = asked.port
    params.endpoint_metrics = not asked.no_metrics
    params.endpoint_slots = True
    params.n_gpu_layers = 0
    params.warmup = False
    params.verbosity = -1
    if asked.api_key:
        params.api_keys = [asked.api_key]
    params.sleep_idle_seconds = asked.sleep_idle_s
    params.ctx_shift = asked.shift
    if asked.pooling:
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # whatever its threads are doing


if __name__ == "__main__":
    main()
