"""Texts in files, one folder per class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fedsaf.data.folders import class_files
from fedsaf.data.text_files import utf8
from fedsaf.data.texts import RawTexts, TextSource


@dataclass(frozen=True, kw_only=True)
class TextFolder(TextSource):
    """A user's own texts as ``path/<class>/*.txt`` or ``path/<part>/<class>/*.txt``, part being train, val or test.

    Attributes:
        path: the folder.
        splits: official parts to pool, in this order; None takes all.
    """

    path: str | None
    splits: Sequence[str] | None

    def read(self, seed: int) -> RawTexts:
        """Read the .txt files, one text each; files of other kinds and hidden ones are skipped with a count.

        Raises:
            ValueError: no such folder, no text in it, a text outside a class folder, an unknown part, or a file that
                is not UTF-8.
        """
        root, found = class_files(self.path, {".txt"}, self.splits, "text")
        return RawTexts(
            name=root.resolve().name,
            texts=[utf8(file) for _, _, file in found],
            labels=[label for _, label, _ in found],
            parts=dict(Counter(part for part, _, _ in found)),
        )
