"""Words to numbers: how a text is cut into words, which words are known, and texts as ids or counts.

Dimension letters: n texts, L tokens per text, V words known, special ones included.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence

import numpy as np
from tokenizers import Encoding, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import __version__ as tokenizers_version

from fedsaf.core.files import read_json, write_atomically
from fedsaf.data.files import cache_folder

log = logging.getLogger(__name__)

PAD, UNKNOWN, START = SPECIALS = ("[PAD]", "[UNK]", "[CLS]")
"""Special words of token ids, in this order. A text cannot hold them, as it is turned into lower case."""

_CHUNK = 4096


def encode_tokens(texts: Sequence[str], words: Sequence[str], length: int) -> np.ndarray:
    """Return (n, L) ids in order, behind the start symbol 2, cut or padded by 0 to ``length`` L; unknown words are 1.

    Ids are positions in ``words``, in the smallest type that holds them: uint8, int16 or int32.
    """
    tokenizer, (pad, _, start) = _tokenizer(words), map(words.index, SPECIALS)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{START} $A", special_tokens=[(START, start)])
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length, pad_id=pad, pad_token=PAD)
    rows = np.empty((len(texts), length), _smallest_type(len(words) - 1))
    for first, chunk in _encodings(tokenizer, texts):
        rows[first : first + len(chunk)] = [encoding.ids for encoding in chunk]
    return rows


def encode_counts(texts: Sequence[str], words: Sequence[str], length: int | None) -> np.ndarray:
    """Return (n, V): how often each word occurs in a text, or in its first ``length`` words; others are not counted.

    The type is the smallest that holds all counts: uint8, int16 or int32.
    """
    tokenizer = _tokenizer([*words, UNKNOWN])
    if length is not None:
        tokenizer.enable_truncation(length)
    chunks = []
    for _, chunk in _encodings(tokenizer, texts):
        counts = np.stack([np.bincount(encoding.ids, minlength=len(words) + 1)[:-1] for encoding in chunk])
        chunks.append(counts.astype(_smallest_type(int(counts.max()))))
    return np.concatenate(chunks)


def learn_words(texts: Sequence[str], size: int | None, specials: Sequence[str]) -> tuple[str, ...]:
    """Return the words that are known, ``size`` at most: special ones, then those of the texts by falling frequency.

    Words of equal frequency stand in the order of their code points. No word at all raises a ValueError.

    >>> learn_words(["b a c", "It's: b!"], 7, ("[PAD]",))
    ('[PAD]', 'b', '!', "'", 'a', 'c', 'it')
    """
    tokenizer = _tokenizer([])
    limit = 2**31 if size is None else size
    trainer = trainers.WordLevelTrainer(vocab_size=limit, special_tokens=list(specials), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    ids = tokenizer.get_vocab()
    if len(ids) <= len(specials):
        raise ValueError(f"no word in any of the {len(texts)} texts that the vocabulary is built from")
    return tuple(sorted(ids, key=ids.__getitem__))


def cached_words(
    key: Sequence[object], texts: Sequence[str], size: int | None, specials: Sequence[str]
) -> tuple[str, ...]:
    """Return `learn_words`, from the cache where it has them; ``key`` tells these texts from any others.

    A cache that cannot be read or written costs time, never a result: a damaged entry is named and made anew.
    """
    identity = json.dumps([tokenizers_version, size, specials, *key])
    try:
        file = cache_folder("vocabulary") / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"
    except ValueError as error:
        log.warning("%s; the vocabulary is not kept", error)
        return learn_words(texts, size, specials)
    try:
        if (content := read_json(file)) is not None:
            if words_hash(content["words"]) == content["sha256"]:
                return tuple(content["words"])
            raise ValueError("the words do not have the hash that was written with them")
    except (ValueError, KeyError, TypeError) as error:
        log.warning("vocabulary cache %s is damaged (%s: %s) and is made anew", file, type(error).__name__, error)
    words = learn_words(texts, size, specials)
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
    return next(kind for kind in (np.uint8, np.int16, np.int32) if largest <= np.iinfo(kind).max)
