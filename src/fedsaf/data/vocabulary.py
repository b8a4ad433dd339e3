"""Words to numbers: how a text is cut into words, which words are known, and texts as ids or counts.

Dimension letters: n texts, L tokens per text, V words known, special ones included.
"""

from __future__ import annotations

import hashlib
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tokenizers import Encoding, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import __version__ as tokenizers_version

from fedsaf.core.files import read_json, write_atomically
from fedsaf.core.types import CountFacts, InputFacts, TokenFacts
from fedsaf.data.files import cache_folder

log = logging.getLogger(__name__)

PAD, UNKNOWN, START = "[PAD]", "[UNK]", "[CLS]"
"""Special words. A text cannot hold them, as it is turned into lower case."""

_CHUNK = 4096


@dataclass(frozen=True)
class Form(ABC):
    """What a text becomes, once the words are known.

    Attributes:
        max_length: L, at most so many tokens of a text are used.
    """

    max_length: int | None
    specials: ClassVar[tuple[str, ...]]

    def check(self, size: int | None) -> None:
        """Raise a ValueError for a length, or a size V (None: all words), that leaves no room for a word."""
        special = len(self.specials)
        if size is not None and size <= special:
            raise ValueError(
                f"dataset.vocabulary_size={size} leaves no room for a word beside {special} special ones; the least is "
                f"{special + 1}, and null takes every word"
            )

    @abstractmethod
    def encode(self, texts: Sequence[str], words: Sequence[str]) -> np.ndarray:
        """Return one row per text, in the smallest type that holds them: uint8, int16 or int32."""

    @abstractmethod
    def facts(self, words: Sequence[str]) -> InputFacts:
        """Return what a model has to know about the rows."""


@dataclass(frozen=True)
class Tokens(Form):
    """Ids of the words in order, behind the start symbol, cut or padded to L: padding 0, unknown 1, start 2; (n, L)."""

    specials = (PAD, UNKNOWN, START)

    def check(self, size: int | None) -> None:
        """Refuse what leaves no room for a start symbol and a word."""
        super().check(size)
        if self.max_length is None or self.max_length < 2:
            came = "null" if self.max_length is None else self.max_length
            raise ValueError(f"dataset.max_length={came} must be at least 2: a start symbol and one word, such as 200")

    def encode(self, texts: Sequence[str], words: Sequence[str]) -> np.ndarray:
        """Return (n, L) ids."""
        tokenizer = _tokenizer(words)
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{START} $A", special_tokens=[(START, words.index(START))]
        )
        length = self._length
        tokenizer.enable_truncation(length)
        tokenizer.enable_padding(length=length, pad_id=words.index(PAD), pad_token=PAD)
        rows = np.empty((len(texts), length), _smallest_type(len(words) - 1))
        for start, chunk in _encodings(tokenizer, texts):
            rows[start : start + len(chunk)] = [encoding.ids for encoding in chunk]
        return rows

    def facts(self, words: Sequence[str]) -> TokenFacts:
        """Return L and V."""
        return TokenFacts(self._length, len(words))

    @property
    def _length(self) -> int:
        assert self.max_length is not None  # `check` saw to it
        return self.max_length


@dataclass(frozen=True)
class Counts(Form):
    """How often each known word occurs in a text; other words are not counted; (n, V)."""

    specials = ()

    def check(self, size: int | None) -> None:
        """Refuse what leaves no room for a word."""
        super().check(size)
        if self.max_length is not None and self.max_length < 1:
            raise ValueError(f"dataset.max_length={self.max_length} must be at least 1, or null to count whole texts")

    def encode(self, texts: Sequence[str], words: Sequence[str]) -> np.ndarray:
        """Return (n, V) counts."""
        tokenizer = _tokenizer([*words, UNKNOWN])
        if self.max_length is not None:
            tokenizer.enable_truncation(self.max_length)
        chunks = []
        for _, chunk in _encodings(tokenizer, texts):
            counts = np.stack([np.bincount(encoding.ids, minlength=len(words) + 1)[:-1] for encoding in chunk])
            chunks.append(counts.astype(_smallest_type(int(counts.max()))))
        return np.concatenate(chunks)

    def facts(self, words: Sequence[str]) -> CountFacts:
        """Return V."""
        return CountFacts(len(words))


FORMS: dict[str, type[Form]] = {"tokens": Tokens, "counts": Counts}
"""The forms by the name that ``dataset.form`` has."""


def learn_words(texts: Sequence[str], size: int | None, specials: Sequence[str]) -> tuple[str, ...]:
    """Return the words that are known, ``size`` at most: special ones, then those of the texts by falling frequency.

    Words of equal frequency stand in the order of their characters' code points.

    Raises:
        ValueError: no word is found.

    >>> learn_words(["b a c", "It's: b!"], 7, ("[PAD]",))
    ('[PAD]', 'b', '!', "'", 'a', 'c', 'it')
    """
    tokenizer = _tokenizer([])
    trainer = trainers.WordLevelTrainer(
        vocab_size=2**31 if size is None else size, special_tokens=list(specials), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    ids = tokenizer.get_vocab()
    if len(ids) <= len(specials):
        raise ValueError(f"no word in any of the {len(texts)} texts that the vocabulary is built from")
    return tuple(sorted(ids, key=ids.__getitem__))


def cached_words(key: Sequence[object], texts: Sequence[str], size: int | None, form: Form) -> tuple[str, ...]:
    """Return `learn_words` of the texts and the special words of the form, from the cache where it has them.

    A cache that cannot be read or written costs time, never a result: a damaged entry is named and made anew. ``key``
    tells these texts from any others.
    """
    identity = json.dumps([tokenizers_version, size, form.specials, *key])
    try:
        file = cache_folder("vocabulary") / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"
    except ValueError as error:
        log.warning("%s; the vocabulary is not kept", error)
        return learn_words(texts, size, form.specials)
    try:
        if (content := read_json(file)) is not None:
            if words_hash(content["words"]) == content["sha256"]:
                return tuple(content["words"])
            raise ValueError("the words do not have the hash that was written with them")
    except (ValueError, KeyError, TypeError) as error:
        log.warning("vocabulary cache %s is damaged (%s: %s) and is made anew", file, type(error).__name__, error)
    words = learn_words(texts, size, form.specials)
    try:
        write_atomically(file, json.dumps({"sha256": words_hash(words), "words": words}))
    except OSError as error:
        log.warning("vocabulary cache %s cannot be written: %s", file, error)
    return words


def words_hash(words: Sequence[str]) -> str:
    """Return the SHA-256 of the words in order."""
    return hashlib.sha256(json.dumps(list(words)).encode()).hexdigest()


def _tokenizer(words: Sequence[str]) -> Tokenizer:
    """Return basic English tokenisation over known words; ids are positions in ``words``.

    Lower case; . , ( ) ! ? ' stand alone; double quotes vanish; ; : and line-break tags part words. The special words
    are given to the model alone, not to the tokenizer, which would otherwise find them in the raw text.
    """
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=UNKNOWN))
    rules: list[tuple[str | Regex, str]] = [(mark, f" {mark} ") for mark in ".,()!?'"]
    rules += [('"', ""), (";", " "), (":", " "), (Regex(r"<br\s*/?>"), " ")]
    steps = [normalizers.Lowercase(), *(normalizers.Replace(pattern, content) for pattern, content in rules)]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def _encodings(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[tuple[int, list[Encoding]]]:
    """Yield chunks with the position of their first text, so that not all encodings are held at once."""
    for start in range(0, len(texts), _CHUNK):
        yield start, tokenizer.encode_batch_fast(list(texts[start : start + _CHUNK]))


def _smallest_type(largest: int) -> type[np.integer]:
    """Return the smallest type that holds 0..largest and that torch can index."""
    kinds = (np.uint8, np.int16, np.int32)
    return next(kind for kind in kinds if largest <= np.iinfo(kind).max)
