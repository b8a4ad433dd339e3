import json
import re
from collections import Counter

import numpy as np
import pytest
import torch

from fedsaf.data import vocabulary
from fedsaf.data.sources.text_tables import Csv
from fedsaf.data.vocabulary import SPECIALS, cached_words, encode_counts, encode_tokens, learn_words, words_hash
from tests.data.recipe import source_of


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSAF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vocabulary"


def plain_tokens(text: str) -> list[str]:
    """Basic English tokenisation by regular expressions: the independent route."""
    text = re.sub(r"([.,()!?'])", r" \1 ", text.lower()).replace('"', "")
    return re.sub(r"<br\s*/?>|[;:]", " ", text).split()


def random_texts(n, seed=0):
    rng = np.random.default_rng(seed)
    words = ["Apple", "banana", "it's", "(x)", 'so-called "thing"', "end.", "What?!", "a;b:c", "<br />", "né", "\t\n"]
    return [" ".join(rng.choice(words, rng.integers(0, 30))) for _ in range(n)]


def test_tokenisation_by_hand():
    text = 'He said: "Don\'t (ever) stop!"<br/>Why?  Well; yes, no.\n'
    words = learn_words([text], None, SPECIALS)
    ids = encode_tokens([text], words, 30)[0]
    assert [words[i] for i in ids if words[i] not in SPECIALS] == (
        ["he", "said", "don", "'", "t", "(", "ever", ")", "stop", "!", "why", "?", "well", "yes", ",", "no", "."]
    )


def test_every_text_is_cut_as_the_rules_say():
    texts = random_texts(200)
    words = learn_words(texts, None, SPECIALS)
    rows = encode_tokens(texts, words, 400)
    for text, row in zip(texts, rows, strict=True):
        tokens = plain_tokens(text)
        assert [words[i] for i in row] == [*SPECIALS[2:], *tokens] + [SPECIALS[0]] * (399 - len(tokens))


@pytest.mark.parametrize("size", [None, 9])
def test_words_stand_by_descending_frequency_ties_alphabetical(size):
    texts = [*random_texts(100), "zz zz yy yy é é B b"]
    counted = Counter(token for text in texts for token in plain_tokens(text))
    expected = [*SPECIALS, *sorted(counted, key=lambda word: (-counted[word], word))]
    assert list(learn_words(texts, size, SPECIALS)) == expected[:size]


def test_special_ids_padding_cut_and_unknown():
    words = learn_words(["b b a"], None, SPECIALS)
    assert words == ("[PAD]", "[UNK]", "[CLS]", "b", "a")
    rows = encode_tokens(["A b", "", "a b a b a", "stranger b"], words, 4)
    assert rows.tolist() == [[2, 4, 3, 0], [2, 0, 0, 0], [2, 4, 3, 4], [2, 1, 3, 0]]
    _, facts = source_of(Csv, max_length=4).encode([""], words)
    assert (facts.length, facts.num_tokens) == (4, 5)


def test_a_text_cannot_hold_a_special_word():
    texts = ["[PAD] [UNK] [CLS] a", "[CLS]"]
    words = learn_words(texts, None, SPECIALS)
    assert words == ("[PAD]", "[UNK]", "[CLS]", "[cls]", "[pad]", "[unk]", "a")
    assert encode_tokens(texts, words, 5).tolist() == [[2, 4, 5, 3, 6], [2, 3, 0, 0, 0]]


def test_a_vocabulary_of_one_word_works_and_of_none_does_not():
    words = learn_words(["yes yes", ""], None, SPECIALS)
    assert encode_tokens(["yes no"], words, 3).tolist() == [[2, 3, 1]]
    with pytest.raises(ValueError, match="no word in any of the 2 texts"):
        learn_words(["", ' " ; '], None, SPECIALS)


@pytest.mark.parametrize(
    ("num_words", "kind"), [(253, np.uint8), (254, np.int16), (32765, np.int16), (32766, np.int32)]
)
def test_ids_have_the_smallest_type_that_torch_can_index(num_words, kind):
    words = [*SPECIALS, *(f"w{i}" for i in range(num_words))]
    rows = encode_tokens([words[-1]], words, 2)
    assert rows.dtype == kind
    assert rows.tolist() == [[2, len(words) - 1]]
    assert torch.from_numpy(rows).index_select(0, torch.tensor([0])).tolist() == rows.tolist()


def test_counts_equal_a_counter():
    texts = random_texts(50)
    words = learn_words(texts, 6, ())
    rows = encode_counts([*texts, "", "stranger"], words, None)
    expected = [[Counter(plain_tokens(text))[word] for word in words] for text in [*texts, "", ""]]
    assert rows.tolist() == expected
    assert rows.dtype == np.uint8
    assert source_of(Csv, form="counts", max_length=None).encode([""], words)[1].dim == 6
    first = encode_counts(texts, words, 3)
    assert first.tolist() == [[Counter(plain_tokens(text)[:3])[word] for word in words] for text in texts]


def test_counts_beyond_255_are_kept():
    rows = encode_counts(["a " * 300 + "b", "b"], ("a", "b"), None)
    assert rows.dtype == np.int16
    assert rows.tolist() == [[300, 1], [0, 1]]


def test_chunks_make_no_difference(monkeypatch):
    texts = [*random_texts(20), "a " * 300]
    words, counted = learn_words(texts, None, SPECIALS), learn_words(texts, 5, ())
    whole = encode_tokens(texts, words, 12), encode_counts(texts, counted, None)
    monkeypatch.setattr(vocabulary, "_CHUNK", 7)
    assert (encode_tokens(texts, words, 12) == whole[0]).all()
    assert (encode_counts(texts, counted, None) == whole[1]).all()


@pytest.mark.parametrize(
    ("form", "length", "size", "named"),
    [
        ("tokens", 1, None, "max_length=1 must be at least 2"),
        ("tokens", None, None, "max_length=null"),
        ("counts", 0, None, "max_length=0 must be at least 1"),
        ("tokens", 5, 3, "vocabulary_size=3 .* the least is 4"),
        ("counts", None, 0, "vocabulary_size=0 .* the least is 1"),
    ],
)
def test_options_without_room_for_a_word_are_named(form, length, size, named):
    with pytest.raises(ValueError, match=named):
        source_of(Csv, form=form, max_length=length, vocabulary_size=size).check()


@pytest.mark.parametrize(("form", "length", "least"), [("tokens", 2, 4), ("counts", 1, 1), ("counts", None, 1)])
def test_the_least_room_is_enough(form, length, least):
    source_of(Csv, form=form, max_length=length, vocabulary_size=least).check()
    source_of(Csv, form=form, max_length=length).check()


# --- cache -----------------------------------------------------------------------------------------------------------


def cached(key=("texts",), size=None, specials=SPECIALS):
    return cached_words(key, ["b a b"], size, specials)


def test_cache_is_used_and_tells_requests_apart(own_cache, monkeypatch):
    words = cached()
    assert len(list(own_cache.iterdir())) == 1
    cached(key=("other texts",))
    cached(size=4)
    cached(specials=())
    assert len(list(own_cache.iterdir())) == 4
    assert {file.suffix for file in own_cache.iterdir()} == {".json"}

    def learn(*_):
        raise AssertionError("the cache was not used")

    monkeypatch.setattr(vocabulary, "learn_words", learn)
    assert cached() == words == ("[PAD]", "[UNK]", "[CLS]", "b", "a")
    assert cached(specials=()) == ("b", "a")


def damage_truncate(text):
    return text[: len(text) // 2]


def damage_word(text):
    return json.dumps({**json.loads(text), "words": ["[PAD]", "[UNK]", "[CLS]", "b", "c"]})


def damage_shape(text):
    return json.dumps([text])


def damage_bytes(text):
    return "\udcff" + text


@pytest.mark.parametrize("damage", [damage_truncate, damage_word, damage_shape, damage_bytes])
def test_damaged_cache_is_named_and_made_anew(own_cache, damage, caplog):
    words = cached()
    file = next(own_cache.iterdir())
    good = file.read_bytes()
    file.write_bytes(damage(good.decode()).encode("utf-8", "surrogateescape"))
    assert cached() == words
    assert f"{file} is damaged" in caplog.text
    assert file.read_bytes() == good


def test_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDSAF_CACHE", str(tmp_path / "file"))
    assert cached() == ("[PAD]", "[UNK]", "[CLS]", "b", "a")
    assert "not kept" in caplog.text


def test_hash_tells_words_and_their_order():
    assert len({words_hash(w) for w in (("a", "b"), ("b", "a"), ("ab",), ("a", "b", "c"))}) == 4
    assert words_hash(["a", "b"]) == words_hash(("a", "b"))
