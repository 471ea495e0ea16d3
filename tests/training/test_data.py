# ruff: noqa: S603  (the commands are our own)
"""Tokeniser, shards, cache, split and sampling order."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.prepare import PreparedData, prepare_data
from training.data.sampler import sample_starts, validation_starts
from training.data.shards import dtype_for
from training.data.sources import list_files, read_documents, split_documents
from training.data.tokenizer import Tokenizer, train_tokenizer
from training.errors import UserError
from training.protocol.train_spec import DataSpec

PREPARE = """
import sys
from pathlib import Path
from training.data.prepare import prepare_data
from training.protocol.train_spec import DataSpec
data = prepare_data(DataSpec(source=sys.argv[1]), vocab_size=320, cache_dir=Path(sys.argv[2]), tokenizer=None)
print(data.digest)
"""
LENGTH = 16


def prepare(corpus: Path, cache: Path, tokenizer: Tokenizer | None = None) -> PreparedData:
    return prepare_data(DataSpec(source=str(corpus)), vocab_size=320, cache_dir=cache, tokenizer=tokenizer)


def start_preparing(corpus: Path, cache: Path, hash_seed: str = "0") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PREPARE, str(corpus), str(cache)],
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_separate_processes_make_the_same_tokeniser_and_shards(corpus: Path, tmp_path: Path) -> None:
    makers = [start_preparing(corpus, tmp_path / seed, seed) for seed in ("1", "2")]
    digests = [maker.communicate(timeout=60)[0] for maker in makers]
    assert digests[0] == digests[1] != ""


def test_processes_that_race_for_one_cache_get_the_same_data(corpus: Path, tmp_path: Path) -> None:
    makers = [start_preparing(corpus, tmp_path / "cache") for _ in range(3)]
    digests = {maker.communicate(timeout=60)[0] for maker in makers}
    assert len(digests) == 1
    assert len(list((tmp_path / "cache" / "tokens").glob("[!.]*"))) == 1


def test_a_cache_left_by_a_killed_process_is_finished_by_the_next(corpus: Path, tmp_path: Path) -> None:
    whole, cache = prepare(corpus, tmp_path / "whole"), tmp_path / "cache"
    maker = start_preparing(corpus, cache)
    while maker.poll() is None and not any((cache / "tokens").glob(".building-*")):
        time.sleep(0.001)
    maker.kill()
    maker.communicate()
    assert prepare(corpus, cache).digest == whole.digest


def test_altered_shards_are_made_again(corpus: Path, tmp_path: Path) -> None:
    digest = prepare(corpus, tmp_path).digest
    (shard,) = tmp_path.glob("tokens/*/train.bin")
    content = bytearray(shard.read_bytes())
    content[100] ^= 1
    shard.write_bytes(content)
    again = prepare(corpus, tmp_path)
    assert again.digest == digest
    assert bytes(shard.read_bytes()) != bytes(content)


def test_a_given_tokeniser_finds_the_set_made_with_it(corpus: Path, tmp_path: Path) -> None:
    first = prepare(corpus, tmp_path)
    (sidecar,) = tmp_path.glob("tokens/*/tokens.json")
    made_at = sidecar.stat().st_mtime_ns
    assert prepare(corpus, tmp_path, Tokenizer(first.tokenizer.definition)).digest == first.digest
    assert sidecar.stat().st_mtime_ns == made_at


def test_shards_decode_to_the_documents(corpus: Path, tmp_path: Path) -> None:
    data, spec = prepare(corpus, tmp_path), DataSpec(source=str(corpus))
    train, _ = split_documents(list(read_documents(list_files(spec))), spec)
    expected = "".join(document.text + "<|endoftext|>" for document in train)
    assert data.tokenizer.decode(data.train.tolist()) == expected
    assert data.train.dtype == np.dtype("<u2")


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65_536, "<u2"), (65_537, "<u4")])
def test_ids_take_two_bytes_while_they_fit(vocab_size: int, dtype: str) -> None:
    assert dtype_for(vocab_size) == dtype


TOKENIZER = train_tokenizer(["def read(self):\n    return self.data\n" * 20, "for x in range(10): pass\n" * 20], 300)


@given(st.text())
def test_every_text_survives_the_tokeniser(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == text
    assert all(0 <= number < TOKENIZER.vocab_size for number in ids)


def test_the_split_has_both_parts_and_an_added_file_moves_nothing(corpus: Path, tmp_path: Path) -> None:
    grown = tmp_path / "grown"
    shutil.copytree(corpus, grown)
    spec = DataSpec(source=str(grown), validation_share=0.3)
    before = split_documents(list(read_documents(list_files(spec))), spec)
    (grown / "another.py").write_text("x = 1\n")
    after = split_documents(list(read_documents(list_files(spec))), spec)
    for old, new in zip(before, after, strict=True):
        assert old
        assert {document.name for document in old} <= {document.name for document in new}


def test_one_large_file_is_split_too(tmp_path: Path) -> None:
    file = tmp_path / "all.txt"
    file.write_text("".join(f"line {number}\n" for number in range(60_000)))
    spec = DataSpec(source=str(file))
    train, validation = split_documents(list(read_documents(list_files(spec))), spec)
    assert sum(len(document.text) for document in train + validation) == file.stat().st_size
    assert len(train) > len(validation) > 0


def test_one_short_document_is_refused(tmp_path: Path) -> None:
    (tmp_path / "only.py").write_text("x = 1\n")
    spec = DataSpec(source=str(tmp_path))
    with pytest.raises(UserError, match="single short document"):
        split_documents(list(read_documents(list_files(spec))), spec)


def test_the_standard_library_is_found_without_its_tests() -> None:
    names = [file.name for file in list_files(DataSpec(max_bytes=2_000_000))]
    assert "argparse.py" in names
    assert names == sorted(names)
    assert not [name for name in names if name.startswith("test/") or "site-packages" in name]


def test_max_bytes_bounds_what_is_read() -> None:
    files = list_files(DataSpec(max_bytes=500_000))
    assert 0 < sum(file.size_bytes for file in files) <= 500_000


@given(st.integers(0, 5), st.integers(2 * LENGTH, 40 * LENGTH))
def test_each_epoch_visits_each_window_once_in_its_own_order(seed: int, num_tokens: int) -> None:
    per_epoch = (num_tokens - 1) // LENGTH
    first, second = (
        sample_starts(epoch * per_epoch, per_epoch, seed=seed, num_tokens=num_tokens, length=LENGTH)
        for epoch in range(2)
    )
    for starts in (first, second):
        assert len({int(start) // LENGTH if per_epoch == 1 else int(start) for start in starts}) == per_epoch
        assert (np.diff(np.sort(starts)) == LENGTH).all()
        assert starts.min() >= 0
        assert starts.max() + LENGTH < num_tokens


def test_samples_depend_on_their_number_alone() -> None:
    def take(first: int, count: int) -> list[int]:
        return sample_starts(first, count, seed=3, num_tokens=500, length=LENGTH).tolist()

    assert take(0, 100) == take(0, 37) + take(37, 63)
    assert take(0, 31) != take(31, 31)


def test_validation_windows_are_spread_and_fit() -> None:
    starts = validation_starts(10, num_tokens=1000, length=LENGTH)
    assert len(set(starts.tolist())) == 10
    assert starts[0] == 0
    assert starts[-1] + LENGTH < 1000
    assert len(validation_starts(10, num_tokens=50, length=LENGTH)) == 3
