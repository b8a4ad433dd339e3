"""Which method runs on which group: averaged heads need one kind of head, averaged models one architecture as well."""

from __future__ import annotations

from functools import cache

import pytest

from fedsaf.assembly import build
from tests.federation.harness import CONF, origin

METHODS = sorted(path.stem for path in (CONF / "method").glob("*.yaml"))
AVERAGE_MODELS = {"fedavg", "fedprox", "scaffold", "moon", "fedproc"}
AVERAGE_HEADS = {"alignfed", "fedgen", "fedgh", "lg_fedavg"}
SEVERAL_HEADS = ("htm4", "htm10", "htfe8_htc4", "res34_htc4")
SEVERAL_TRUNKS = ("htfe2", "htfe9")


@cache
def part(group, *words):
    return build(origin(words, None).config, group)


@pytest.mark.parametrize("method", METHODS)
def test_groups_that_a_method_cannot_run_on_are_refused(method):
    built = part("method", f"method={method}")
    for group in (*SEVERAL_HEADS, *SEVERAL_TRUNKS):
        refused = method in AVERAGE_MODELS or (method in AVERAGE_HEADS and group in SEVERAL_HEADS)
        if refused:
            with pytest.raises(ValueError, match="averages (classifiers|whole models)"):
                built.check(part("model_group", f"model_group={group}"))
        else:
            built.check(part("model_group", f"model_group={group}"))
