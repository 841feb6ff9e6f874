from __future__ import annotations

import pytest

from engine.scheduling.kv_cache import BlockPool, KVCacheManager


def test_blocks_come_from_the_slots_home_run_while_it_is_free() -> None:
    kv = KVCacheManager(num_blocks=12, block_size=4, max_num_seqs=3)
    assert kv.allocate_slots("a", 0, 9) and kv.allocate_slots("b", 2, 5)
    assert kv.tables == {"a": [0, 1, 2], "b": [8, 9]}


def test_a_run_that_outgrows_its_home_goes_on_elsewhere() -> None:
    kv = KVCacheManager(num_blocks=6, block_size=1, max_num_seqs=3)
    assert kv.allocate_slots("a", 0, 2) and kv.allocate_slots("b", 1, 2)
    assert kv.allocate_slots("a", 0, 4)
    assert kv.tables["a"] == [0, 1, 4, 5]


def test_failing_to_allocate_changes_nothing() -> None:
    kv = KVCacheManager(num_blocks=3, block_size=2, max_num_seqs=1)
    assert kv.allocate_slots("a", 0, 3)
    assert not kv.allocate_slots("b", 0, 3)
    assert kv.tables == {"a": [0, 1]} and kv.pool.num_free == 1


def test_growing_within_a_block_takes_none() -> None:
    kv = KVCacheManager(num_blocks=3, block_size=4, max_num_seqs=1)
    kv.allocate_slots("a", 0, 1)
    kv.allocate_slots("a", 0, 4)
    assert kv.tables["a"] == [0] and kv.pool.num_allocated == 1


def test_freeing_twice_is_a_fault_of_the_pool_and_harmless_in_the_manager() -> None:
    kv = KVCacheManager(num_blocks=2, block_size=1, max_num_seqs=1)
    kv.allocate_slots("a", 0, 2)
    kv.free("a")
    kv.free("a")
    assert kv.pool.num_free == 2 and kv.pool.num_freed == 2
    with pytest.raises(ValueError, match="twice"):
        kv.pool.give_back([0])


def test_an_empty_pool_says_so() -> None:
    pool = BlockPool(1)
    pool.take(0)
    with pytest.raises(KeyError):
        pool.take(0)
