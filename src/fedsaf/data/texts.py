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

from fedsaf.data.datasets import Annotations, LabelledDataset, Samples
from fedsaf.data.raw import RawSamples, RawSource
from fedsaf.data.vocabulary import FORMS, Form, cached_words, words_hash

log = logging.getLogger(__name__)

VOCABULARY_FROM = ("train", "all")
"""What a vocabulary may be learnt from."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TextSamples(Samples):
    """Labelled texts whose vocabulary is not learnt yet.

    Attributes:
        texts: n texts.
        source: says what becomes of them.
    """

    texts: Sequence[str]
    source: TextSource

    def fitted(self, train_rows: np.ndarray) -> LabelledDataset:
        """Learn the vocabulary from the texts that train at some client, or from all, and turn every text into numbers.

        Raises:
            ValueError: no word in any of these texts.
        """
        source, form = self.source, self.source.made
        rows = np.unique(train_rows) if source.vocabulary_from == "train" else np.arange(len(self))
        key = (self.fingerprint, hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest())
        try:
            words = cached_words(key, [self.texts[i] for i in rows.tolist()], source.vocabulary_size, form)
        except ValueError as error:
            raise ValueError(f"dataset {self.name}: {error}") from error
        found = words[len(form.specials) :]
        if len(found) == 1:
            message = "dataset %s: %r is the only word that is known; is dataset.text_column right?"
            log.warning(message, self.name, found[0])
        facts = form.facts(words)
        learnt = {"from": source.vocabulary_from, "size": len(words), "sha256": words_hash(words)}
        log.info("dataset %s: %s, vocabulary %s of %d texts", self.name, facts, learnt, len(rows))
        return LabelledDataset(
            **self.annotations(),
            inputs=torch.from_numpy(form.encode(self.texts, words)),
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

    def check(self) -> None:
        """Refuse options that no texts fit."""
        if self.form not in FORMS:
            raise ValueError(f"dataset.form={self.form!r} is unknown; choose {' or '.join(FORMS)}")
        if self.vocabulary_from not in VOCABULARY_FROM:
            raise ValueError(
                f"dataset.vocabulary_from={self.vocabulary_from!r} is unknown; choose {' or '.join(VOCABULARY_FROM)}"
            )
        self.made.check(self.vocabulary_size)

    @property
    def made(self) -> Form:
        """What a text becomes."""
        return FORMS[self.form](self.max_length)

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
