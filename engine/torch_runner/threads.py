"""How many torch threads to use.

On a quiet machine one thread a core is fastest. On a busy one OpenMP's threads wait for each other at
every product, spinning: two threads on two busy cores were seen to be many times slower than one.
"""

from __future__ import annotations

import os


def default_num_threads() -> int:
    """One thread a core this process may use, or a single one while the machine is busy already."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return 1 if busy >= cores else cores
