"""Texts as a data set: found by a source; made into ids or counts once it is known which of them train.

Dimension letters: n samples, C classes, L tokens per text, V words known.
"""

from __future__ import annotations

import hashlib
import logging
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedsaf.core.seeding import numpy_generator
from fedsaf.data.datasets import LabelledDataset, Samples, Source, balanced_subset
from fedsaf.data.labels import Annotations, EncodedLabels
from fedsaf.data.vocabulary import FORMS, Form, cached_words, words_hash

log = logging.getLogger(__name__)

VOCABULARY_FROM = ("train", "all")
"""What a vocabulary may be learnt from."""

_NAMED_ROWS = 20


@dataclass(frozen=True)
class RawTexts:
    """What a source found, no word known and no label mapped yet.

    Attributes:
        name: name of the data set.
        texts: n texts, possibly empty.
        labels: n labels as they stand in the source.
        parts: official part to number of samples, in the order of ``texts``.
        class_names: names of the label ids where the source defines them, else None.
        groups: n group labels as they stand in the source, or None.
        group_names: names of the group ids where the source defines them, else None.
    """

    name: str
    texts: Sequence[str]
    labels: Sequence[Any]
    parts: dict[str, int]
    class_names: tuple[str, ...] | None = None
    groups: Sequence[Any] | None = None
    group_names: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class TextSamples(Samples):
    """Labelled texts whose vocabulary is not learnt yet.

    Attributes:
        texts: n texts.
        form: what they become.
        vocabulary_size: V at most, special words included; None for all words.
        vocabulary_from: ``train`` or ``all``.
    """

    texts: Sequence[str]
    form: Form
    vocabulary_size: int | None
    vocabulary_from: str

    def fitted(self, train_rows: np.ndarray) -> LabelledDataset:
        """Learn the vocabulary from the texts that train at some client, or from all, and turn every text into numbers.

        Args:
            train_rows: positions of the texts that train.

        Raises:
            ValueError: no word in any of these texts.
        """
        rows = np.unique(train_rows) if self.vocabulary_from == "train" else np.arange(len(self))
        key = (self.fingerprint, hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest())
        try:
            words = cached_words(key, [self.texts[i] for i in rows], self.vocabulary_size, self.form)
        except ValueError as error:
            raise ValueError(f"dataset {self.name}: {error}") from error
        found = words[len(self.form.specials) :]
        if len(found) == 1:
            log.warning(
                "dataset %s: %r is the only word that is known; is dataset.text_column right?", self.name, found[0]
            )
        inputs = self.form.encode(self.texts, words)
        facts = self.form.facts(words)
        learnt = {"from": self.vocabulary_from, "size": len(words), "sha256": words_hash(words)}
        log.info("dataset %s: %s, vocabulary %s of %d texts", self.name, facts, learnt, len(rows))
        return LabelledDataset(
            name=self.name,
            inputs=torch.from_numpy(inputs),
            labels=self.labels,
            class_names=self.class_names,
            groups=self.groups,
            group_names=self.group_names,
            label_mapping=self.label_mapping,
            parts=self.parts,
            subset=self.subset,
            fingerprint=self.fingerprint,
            facts=facts,
            vocabulary=words,
            learnt={"vocabulary": learnt},
        )


@dataclass(frozen=True, kw_only=True)
class TextSource(Source):
    """Where texts come from, and the options that every source has.

    Attributes:
        form: ``tokens`` (ids in order) or ``counts`` (bag of words).
        max_length: L, tokens that are used of a text, the start symbol included; None uses all, for counts only.
        vocabulary_size: V at most, special words included; None takes all words.
        vocabulary_from: ``train``: only texts that train at some client; ``all``: every text, as in public code.
        max_samples: size of a class-balanced subset; None keeps everything.
    """

    form: str
    max_length: int | None
    vocabulary_size: int | None
    vocabulary_from: str
    max_samples: int | None

    @abstractmethod
    def read(self, seed: int) -> RawTexts:
        """Find the texts and labels; ``seed`` is for sources that draw them."""

    def load(self, seed: int, subset: int = 0) -> TextSamples:
        """Read, map labels, take the subset.

        Args:
            seed: key of the subset draw; pass the partition seed, not the run seed, so that repetitions of an
                experiment see the same data.
            subset: which of the disjoint subsets of ``max_samples`` to take.

        Raises:
            ValueError: an option out of range, no text, only empty ones, or a label that is missing or unusable.
        """
        form = self._form()
        raw = self.read(seed)
        if not raw.texts:
            raise ValueError(f"dataset {raw.name}: no text found")
        annotations = Annotations.of(raw)
        _check_labels(annotations.labels, raw)
        rng = numpy_generator(seed, "max_samples")
        keep = balanced_subset(annotations.labels.ids, self.max_samples, rng, subset)
        texts = [raw.texts[i] for i in keep]
        _check_texts(texts, raw.name)
        samples = TextSamples(
            **annotations.fields(keep),
            subset={"max_samples": self.max_samples, "of": len(raw.texts)} if len(keep) < len(raw.texts) else {},
            fingerprint=_fingerprint(texts, annotations.ids(keep)),
            texts=texts,
            form=form,
            vocabulary_size=self.vocabulary_size,
            vocabulary_from=self.vocabulary_from,
        )
        log.info("dataset %s: %d texts, %d classes, parts %s", raw.name, len(keep), samples.num_classes, samples.parts)
        return samples

    def _form(self) -> Form:
        """Return the form, all options checked that need no data."""
        if self.form not in FORMS:
            raise ValueError(f"dataset.form={self.form!r} is unknown; choose {' or '.join(FORMS)}")
        if self.vocabulary_from not in VOCABULARY_FROM:
            raise ValueError(
                f"dataset.vocabulary_from={self.vocabulary_from!r} is unknown; choose {' or '.join(VOCABULARY_FROM)}"
            )
        form = FORMS[self.form](self.max_length)
        form.check(self.vocabulary_size)
        return form


def _check_texts(texts: Sequence[str], name: str) -> None:
    """Count empty texts, which become padding behind the start symbol, or zero counts."""
    empty = [i for i, text in enumerate(texts) if not text.strip()]
    if len(empty) == len(texts):
        raise ValueError(f"dataset {name}: all {len(texts)} texts are empty; is dataset.text_column right?")
    if empty:
        log.warning("dataset %s: %d of %d texts are empty, the first in row %d", name, len(empty), len(texts), empty[0])


def _check_labels(labels: EncodedLabels, raw: RawTexts) -> None:
    """Refuse a column of numbers or names that are nearly all different, such as row ids."""
    if raw.class_names is None and len(labels.ids) >= _NAMED_ROWS and 2 * len(labels.names) > len(labels.ids):
        raise ValueError(
            f"dataset {raw.name}: the labels have {len(labels.names)} different values in {len(labels.ids)} rows, such "
            f"as {labels.names[0]!r}; is dataset.label_column right?"
        )


def _fingerprint(texts: Sequence[str], ids: Sequence[np.ndarray]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    for column in ids:
        digest.update(column.astype("<i8").tobytes())
    return digest.hexdigest()
