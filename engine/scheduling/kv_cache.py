"""KV blocks by request: block tables, how they grow, and which begin with blocks others have filled.

Owns the tables; the tensors behind the block ids are the runner's. A slot has a home run: block i of
slot s prefers physical block s * R + i, R = num_blocks // max_num_seqs, so that rows at home lie at one
stride and attention can view them without a gather.

Prefix caching (the scheme is vLLM's): a full block is known by the hash of its tokens and of the block
before it, hence of all tokens up to its end. A request that begins with the same tokens takes such
blocks into its table instead of computing them; whoever shares a block only reads it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b

from engine.request import Request
from engine.scheduling.block_pool import BlockPool


class KVCacheManager:
    """Block tables by request id (`allocate_slots`/`free` are vLLM's names).

    Args:
        num_blocks, block_size: of the arena.
        max_num_seqs: slots, for their home runs.
        prefix_caching: whether blocks are shared between requests.
    """

    def __init__(
        self, num_blocks: int, block_size: int, max_num_seqs: int, *, prefix_caching: bool = False
    ) -> None:
        self.pool = BlockPool(num_blocks)
        self.block_size = block_size
        self.tables: dict[str, list[int]] = {}
        self._home = max(1, num_blocks // max_num_seqs)
        self._prefix_caching = prefix_caching
        #: How many of a table's blocks the index has been told of.
        self._committed: dict[str, int] = {}

    @property
    def prefix_caching(self) -> bool:
        return self._prefix_caching

    def set_prefix_caching(self, wanted: bool) -> None:
        """Switch sharing on or off; off forgets every prefix, but blocks that are shared stay so."""
        self._prefix_caching = wanted
        if not wanted:
            self.clear_index()

    def set_num_slots(self, max_num_seqs: int) -> None:
        """Home runs for another number of slots; tables there are stay where they are."""
        self._home = max(1, self.pool.num_blocks // max_num_seqs)

    def cached_prefix(self, request: Request) -> list[int]:
        """Blocks that hold the beginning of its tokens already. Changes nothing.

        At least its last token is left to be computed: without a forward there is nothing to sample.
        """
        blocks: list[int] = []
        if self._prefix_caching:
            for place in range((request.num_tokens - 1) // self.block_size):
                block = self.pool.find(self._prefix(request, place))
                if block is None:
                    break
                blocks.append(block)
        return blocks

    def allocate_slots(self, request_id: str, slot: int, num_tokens: int, cached: Sequence[int] = ()) -> bool:
        """Grow a request's table to hold `num_tokens`; False, and nothing changed, if blocks are lacking.

        Args:
            cached: blocks of `cached_prefix`, for a request that has no table yet.
        """
        have = len(self.tables.get(request_id, ())) + len(cached)
        needed = max(0, -(-num_tokens // self.block_size) - have)
        if needed > self.pool.num_free - sum(not self.pool.holders(block) for block in cached):
            return False
        table = self.tables.setdefault(request_id, [])
        for block in cached:
            self.pool.share(block)
            table.append(block)
        for _ in range(needed):
            table.append(self.pool.take(slot * self._home + len(table)))
        return True

    def commit(self, request: Request) -> None:
        """The forward that computed its `num_computed_tokens` succeeded: its full blocks may be shared."""
        if not self._prefix_caching:
            return
        full = request.num_computed_tokens // self.block_size
        done = self._committed.get(request.request_id, 0)
        table = self.tables[request.request_id]
        for place in range(done, full):
            self.pool.index(table[place], self._prefix(request, place))
        self._committed[request.request_id] = full

    def free(self, request_id: str) -> None:
        """Give a request's blocks back; a request without any is no fault."""
        self.pool.give_back(self.tables.pop(request_id, ()))
        self._committed.pop(request_id, None)

    def spoilt(self, request_id: str) -> set[int]:
        """What a request's blocks hold means nothing: nobody may find them. Returns them."""
        blocks = set(self.tables.get(request_id, ()))
        for block in blocks:
            self.pool.forget(block)
        return blocks

    def clear_index(self) -> None:
        """What the blocks hold is gone, or not to be shared any more."""
        self.pool.clear_index()
        self._committed.clear()

    def _prefix(self, request: Request, place: int) -> bytes:
        """The hash of all its tokens up to the end of block `place`; kept, for tokens never change."""
        hashes, size = request.block_hashes, self.block_size
        while len(hashes) <= place:
            start = len(hashes) * size
            tokens = array("q", request.tokens(start, start + size)).tobytes()
            hashes.append(blake2b((hashes[-1] if hashes else b"") + tokens, digest_size=16).digest())
        return hashes[place]
