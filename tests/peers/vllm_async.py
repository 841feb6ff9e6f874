"""vLLM's command line with asynchronous scheduling on a CPU, where vLLM turns it off as of no use.

    python vllm_async.py serve …

It is vLLM's own scheduler, engine loop and model runner; what is undone is that one line of its CPU platform.
Runs in vLLM's environment.
"""

from __future__ import annotations

from typing import Any

from vllm.platforms.cpu import CpuPlatform

_plain = CpuPlatform.check_and_update_config.__func__


def _checked(cls: type, vllm_config: Any) -> None:
    _plain(cls, vllm_config)
    vllm_config.scheduler_config.async_scheduling = True


# At import, so that the processes vLLM spawns have it, too.
CpuPlatform.check_and_update_config = classmethod(_checked)

if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main

    main()
