"""Texts as a data set: found by a source; made into ids or counts once it is known which of them train.

Dimension letters: n samples, L tokens per text, V words known.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedsaf.core.types import CountFacts, InputFacts, TokenFacts
from fedsaf.data.datasets import Annotations, LabelledDataset, Samples
from fedsaf.data.raw import RawSamples, RawSource
from fedsaf.data.vocabulary import SPECIALS, cached_words, encode_counts, encode_tokens, words_hash

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False, kw_only=True)
class TextSamples(Samples):
    """n labelled texts whose vocabulary is not learnt yet; their source says what becomes of them."""

    texts: Sequence[str]
    source: TextSource

    def fitted(self, train_rows: np.ndarray) -> LabelledDataset:
        """Learn the vocabulary from the texts that train at some client, or from all, and turn every text into numbers.

        No word in any of these texts raises a ValueError.
        """
        source = self.source
        rows = np.unique(train_rows) if source.vocabulary_from == "train" else np.arange(len(self))
        key = (self.fingerprint, hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest())
        try:
            words = cached_words(key, [self.texts[i] for i in rows.tolist()], source.vocabulary_size, source.specials)
        except ValueError as error:
            raise ValueError(f"dataset {self.name}: {error}") from error
        found = words[len(source.specials) :]
        if len(found) == 1:
            message = "dataset %s: %r is the only word that is known; is dataset.text_column right?"
            log.warning(message, self.name, found[0])
        learnt = {"from": source.vocabulary_from, "size": len(words), "sha256": words_hash(words)}
        inputs, facts = source.encode(self.texts, words)
        log.info("dataset %s: %s, vocabulary %s of %d texts", self.name, facts, learnt, len(rows))
        return LabelledDataset(
            **self.annotations(),
            inputs=torch.from_numpy(inputs),
            fingerprint=self.fingerprint,
            facts=facts,
            vocabulary=words,
            learnt={"vocabulary": learnt},
        )


@dataclass(frozen=True, kw_only=True)
class TextSource(RawSource[Sequence[str]]):
    """Where texts come from: ``read`` finds them, everything else follows; and the options that every source has.

    Attributes:
        form: ``tokens`` (ids in order) or ``counts`` (bag of words).
        max_length: L, tokens that are used of a text, the start symbol included; None uses all, for counts only.
        vocabulary_size: V at most, special words included; None takes all words.
        vocabulary_from: ``train``: only texts that train at some client; ``all``: every text, as in public code.
    """

    form: str
    max_length: int | None
    vocabulary_size: int | None
    vocabulary_from: str

    kind = "text"

    @property
    def specials(self) -> tuple[str, ...]:
        """Special words of the form."""
        return SPECIALS if self.form == "tokens" else ()

    def check(self) -> None:
        """Refuse unknown choices, and a length or size that leaves no room for a word."""
        for key, choices in (("form", ("tokens", "counts")), ("vocabulary_from", ("train", "all"))):
            if getattr(self, key) not in choices:
                raise ValueError(f"dataset.{key}={getattr(self, key)!r} is unknown; choose {' or '.join(choices)}")
        size, special, length = self.vocabulary_size, len(self.specials), self.max_length
        if size is not None and size <= special:
            raise ValueError(
                f"dataset.vocabulary_size={size} leaves no room for a word beside {special} special ones; the least is "
                f"{special + 1}, and null takes every word"
            )
        if self.form == "tokens" and (length is None or length < 2):
            came = "null" if length is None else length
            raise ValueError(f"dataset.max_length={came} must be at least 2: a start symbol and one word, such as 200")
        if length is not None and length < 1:
            raise ValueError(f"dataset.max_length={length} must be at least 1, or null to count whole texts")

    def encode(self, texts: Sequence[str], words: Sequence[str]) -> tuple[np.ndarray, InputFacts]:
        """Return the rows of the texts, and what a model has to know about them."""
        if self.form == "counts":
            return encode_counts(texts, words, self.max_length), CountFacts(len(words))
        assert self.max_length is not None  # `check` saw to it
        return encode_tokens(texts, words, self.max_length), TokenFacts(self.max_length, len(words))

    def samples(self, raw: RawSamples[Sequence[str]], keep: np.ndarray, known: Annotations, seed: int) -> TextSamples:
        """Gather the texts; if all are empty, a ValueError, if some are, a warning."""
        texts = [raw.items[i] for i in keep]
        empty = [i for i, text in enumerate(texts) if not text.strip()]  # padding behind the start, or zero counts
        if len(empty) == len(texts):
            raise ValueError(f"dataset {raw.name}: all {len(texts)} texts are empty; is dataset.text_column right?")
        if empty:
            counted = (raw.name, len(empty), len(texts), empty[0])
            log.warning("dataset %s: %d of %d texts are empty, the first in row %d", *counted)
        digest = hashlib.sha256()
        for text in texts:
            encoded = text.encode("utf-8", "surrogatepass")
            digest.update(len(encoded).to_bytes(8, "little") + encoded)
        digest.update(known.id_bytes)
        return TextSamples(**known.annotations(), fingerprint=digest.hexdigest(), texts=texts, source=self)
