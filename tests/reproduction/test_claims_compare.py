"""The runs that the sweeps of a paper's tables and figures plan can be compared as the claims about them do."""

import pytest

from fedsaf.reproduction.agreement import added_words, differences
from fedsaf.reproduction.claims.definition import claim_definitions
from fedsaf.reproduction.selection import on_stand_in, satisfies
from tests.reproduction.planned import planned

CLAIMS = claim_definitions()


def check(name, scale):
    claim = CLAIMS[name]
    for part in claim.parts:
        placed = []
        for spot in (spot for arm in part.arms for spot in arm.spots):
            required = claim.requirement(spot, scale)
            found = [run for run in planned(claim.source.target, scale) if satisfies(run.settings, required)]
            if not found and scale != "full":
                replaced = on_stand_in(required)
                found = [run for run in planned(claim.source.target, scale) if satisfies(run.settings, replaced)]
            assert found, spot.name
            placed += [(run, required) for run in found]
        assert differences(placed) == [], part.name
        assert scale != "full" or not any(added_words(run, required) for run, required in placed)


@pytest.mark.parametrize("scale", ["full", "small"])
@pytest.mark.parametrize("name", ["saf-f1-dimensions", "saf-t8-both (CIFAR-10)"])
def test_a_few_claims(name, scale):
    check(name, scale)


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["full", "small", "smoke"])
@pytest.mark.parametrize("name", CLAIMS)
def test_all_claims(name, scale):
    check(name, scale)
