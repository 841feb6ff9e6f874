"""What `cbtui attach` costs the server it looks at."""

from __future__ import annotations

from tests.benchmarks.llama_cost import llama_cost
from tests.benchmarks.parts import Effort
from tests.benchmarks.report import Report
from tests.benchmarks.vllm_cost import vllm_cost


def attach(report: Report, effort: Effort) -> None:
    """llama.cpp's server, and where it is installed a vLLM."""
    llama_cost(report, effort.rounds, effort.scale, effort.threads)
    vllm_cost(report, effort.rounds, effort.scale, effort.threads)
