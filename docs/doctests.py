"""A doctest follows the text of a docstring without a heading; the reference shows it as the example that it is."""

import re
from textwrap import indent
from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Puts a heading over each doctest that has none."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one docstring before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^>>> (?:.+\n?)+", _example, obj.docstring.value, flags=re.MULTILINE)


def _example(doctest: re.Match[str]) -> str:
    return f"Examples:\n{indent(doctest[0], '    ')}"
