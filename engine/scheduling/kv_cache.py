"""KV blocks: who owns which, and how a request's block table grows.

Owns the free list and the tables; the tensors behind the block ids are the runner's. A slot has a home
run: block i of slot s prefers physical block s * R + i, R = num_blocks // max_num_seqs, so that rows at
home lie at one stride and attention can view them without a gather.
"""

from __future__ import annotations


class BlockPool:
    """Free KV blocks, each owned by one holder or by nobody."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free: dict[int, None] = dict.fromkeys(range(num_blocks))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self, preferred: int) -> int:
        """A free block: the preferred one if it is free, else the one freed longest ago.

        Raises:
            KeyError: nothing is free; ask `num_free` first.
        """
        block = preferred if preferred in self._free else next(iter(self._free), None)
        if block is None:
            raise KeyError("no free KV block")
        del self._free[block]
        return block

    def give_back(self, blocks: list[int]) -> None:
        """Return blocks.

        Raises:
            ValueError: one of them is free already: a fault in the engine.
        """
        for block in blocks:
            if block in self._free or not 0 <= block < self.num_blocks:
                raise ValueError(f"block {block} freed twice or unknown")
            self._free[block] = None


class KVCacheManager:
    """Block tables by request id (`allocate_slots`/`free` are vLLM's names).

    Args:
        num_blocks, block_size: of the arena.
        max_num_seqs: slots, for their home runs.
    """

    def __init__(self, num_blocks: int, block_size: int, max_num_seqs: int) -> None:
        self.pool = BlockPool(num_blocks)
        self.block_size = block_size
        self.tables: dict[str, list[int]] = {}
        self.num_allocated = 0
        self.num_freed = 0
        self._home = max(1, num_blocks // max_num_seqs)

    def num_needed(self, request_id: str, num_tokens: int) -> int:
        """Blocks still missing for a request to hold that many tokens."""
        have = len(self.tables.get(request_id, ()))
        return max(0, -(-num_tokens // self.block_size) - have)

    def allocate_slots(self, request_id: str, slot: int, num_tokens: int) -> bool:
        """Grow a request's table to hold `num_tokens`; False, and nothing changed, if blocks are lacking."""
        needed = self.num_needed(request_id, num_tokens)
        if needed > self.pool.num_free:
            return False
        table = self.tables.setdefault(request_id, [])
        for _ in range(needed):
            table.append(self.pool.take(slot * self._home + len(table)))
        self.num_allocated += needed
        return True

    def free(self, request_id: str) -> None:
        """Give a request's blocks back; a request without any is no fault."""
        table = self.tables.pop(request_id, [])
        self.pool.give_back(table)
        self.num_freed += len(table)
