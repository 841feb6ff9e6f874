"""KV blocks by number: free, owned, or free with a prefix in them that may be used again.

Knows nothing of requests, tokens or tensors. A block is owned by as many holders as share it. One that
nobody owns keeps its place in the index of prefixes, if it had one, until a free block is needed and
none without a prefix is left: then the least recently used goes.
"""

from __future__ import annotations

from collections.abc import Iterable


class BlockPool:
    """The blocks of one arena.

    Attributes:
        num_blocks: all of them.
        num_extra_holders: holders beyond the first, summed over shared blocks.
        num_allocated, num_freed: blocks that went from nobody to a first holder, and back, so far.
        num_shared: holders that took a block from the index so far.
        num_evicted: prefixes given up for their block so far.
        cached_version: rises whenever other blocks than before are nobody's and hold a prefix.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.num_extra_holders = 0
        self.num_allocated = 0
        self.num_freed = 0
        self.num_shared = 0
        self.num_evicted = 0
        self.cached_version = 0
        self._free: dict[int, None] = dict.fromkeys(range(num_blocks))
        #: Nobody's blocks with a prefix, least recently used first.
        self._cached: dict[int, None] = {}
        self._holders = [0] * num_blocks
        self._block_of: dict[bytes, int] = {}
        self._prefix_of: dict[int, bytes] = {}

    @property
    def num_free(self) -> int:
        """Blocks nobody owns, those with a prefix included."""
        return len(self._free) + len(self._cached)

    @property
    def num_cached(self) -> int:
        """Blocks nobody owns that hold a prefix."""
        return len(self._cached)

    def cached_runs(self) -> tuple[tuple[int, int], ...]:
        """The blocks nobody owns that hold a prefix, as runs [first, stop) of neighbours, rising."""
        runs: list[list[int]] = []
        for block in sorted(self._cached):
            if runs and block == runs[-1][1]:
                runs[-1][1] = block + 1
            else:
                runs.append([block, block + 1])
        return tuple((first, stop) for first, stop in runs)

    def holders(self, block: int) -> int:
        """How many own a block."""
        return self._holders[block]

    def is_indexed(self, block: int) -> bool:
        """Whether a block can be found by its prefix."""
        return block in self._prefix_of

    def take(self, preferred: int) -> int:
        """A free block: the preferred one if it is free and empty, else the one freed longest ago, else
        that of the least recently used prefix, which is forgotten.

        Raises:
            KeyError: nothing is free; ask `num_free` first.
        """
        if preferred in self._free:
            block = preferred
            del self._free[block]
        elif self._free:
            block = next(iter(self._free))
            del self._free[block]
        elif self._cached:
            block = next(iter(self._cached))
            del self._cached[block]
            del self._block_of[self._prefix_of.pop(block)]
            self.num_evicted += 1
            self.cached_version += 1
        else:
            raise KeyError("no free KV block")
        self._holders[block] = 1
        self.num_allocated += 1
        return block

    def share(self, block: int) -> None:
        """One more holder of a block in the index.

        Raises:
            ValueError: it is not in the index: a fault in the engine.
        """
        if block not in self._prefix_of:
            raise ValueError(f"block {block} holds no known prefix")
        if self._holders[block]:
            self.num_extra_holders += 1
        else:
            del self._cached[block]
            self.cached_version += 1
            self.num_allocated += 1
        self._holders[block] += 1
        self.num_shared += 1

    def give_back(self, blocks: Iterable[int]) -> None:
        """One holder less of each block, given in the order of a table.

        Raises:
            ValueError: nobody owns one of them: a fault in the engine.
        """
        prefixed = []
        for block in blocks:
            if not 0 <= block < self.num_blocks or not self._holders[block]:
                raise ValueError(f"block {block} freed twice or unknown")
            self._holders[block] -= 1
            if self._holders[block]:
                self.num_extra_holders -= 1
                continue
            self.num_freed += 1
            if block in self._prefix_of:
                prefixed.append(block)
            else:
                self._free[block] = None
        # The end of a prefix goes before its beginning, without which it could not be found.
        self._cached.update(dict.fromkeys(reversed(prefixed)))
        self.cached_version += bool(prefixed)

    def index(self, block: int, prefix: bytes) -> None:
        """Let an owned block be found by its prefix. Of equal ones the first stays."""
        if prefix not in self._block_of and block not in self._prefix_of:
            self._block_of[prefix] = block
            self._prefix_of[block] = prefix

    def find(self, prefix: bytes) -> int | None:
        """The block that holds this prefix."""
        return self._block_of.get(prefix)

    def forget(self, block: int) -> None:
        """Let an owned block be found no more: what it holds means nothing."""
        prefix = self._prefix_of.pop(block, None)
        if prefix is not None:
            del self._block_of[prefix]

    def clear_index(self) -> None:
        """Forget every prefix; owned blocks stay owned."""
        self._block_of.clear()
        self._prefix_of.clear()
        self.cached_version += bool(self._cached)
        self._free.update(self._cached)
        self._cached.clear()
