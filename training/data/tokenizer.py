"""The byte-pair tokeniser: trained on the spot, byte-level, so that every text has a code and decodes to itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from training.errors import UserError

END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 0
TRAINING_BYTES = 4 * 1024 * 1024
"""Merges are learnt on a sample of about this much text: more changes them little and costs seconds."""
ENCODE_BATCH = 256


class Tokenizer:
    """Text to ids below `vocab_size` and back. `digest` is its identity."""

    def __init__(self, definition: bytes) -> None:
        self.definition = definition
        self.digest = hashlib.sha256(definition).hexdigest()
        self._fast = FastTokenizer.from_str(definition.decode())
        self.vocab_size = self._fast.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        return self._fast.encode(text, add_special_tokens=False).ids

    def encode_documents(self, texts: Iterable[str]) -> Iterator[list[int]]:
        """One list of ids a text, in order; computed in batches on all cores."""
        batch: list[str] = []
        for text in texts:
            batch.append(text)
            if len(batch) == ENCODE_BATCH:
                yield from self._encode_batch(batch)
                batch = []
        yield from self._encode_batch(batch)

    def _encode_batch(self, batch: list[str]) -> Iterator[list[int]]:
        return (code.ids for code in self._fast.encode_batch_fast(batch, add_special_tokens=False))

    def decode(self, ids: list[int]) -> str:
        return self._fast.decode(ids, skip_special_tokens=False)


def train_tokenizer(texts: list[str], vocab_size: int) -> Tokenizer:
    """Learn merges from every k-th text, k such that about TRAINING_BYTES are read. The same texts give the same bytes."""
    stride = max(1, round(sum(map(len, texts)) / TRAINING_BYTES))
    fast = FastTokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    fast.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if vocab_size < len(alphabet) + 1:
        raise UserError(f"model.vocab_size: {vocab_size} is less than the {len(alphabet) + 1} that bytes need")
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[END_OF_TEXT], initial_alphabet=alphabet, show_progress=False
    )
    fast.train_from_iterator(texts[::stride], trainer)
    return Tokenizer(fast.to_str().encode())
