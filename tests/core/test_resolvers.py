"""``case`` picks by a key what stands side by side."""

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import InterpolationResolutionError

from fedsaf.core.resolvers import register


def resolved(value, **others):
    register()
    return OmegaConf.to_container(OmegaConf.create({"here": {"value": value}, **others}), resolve=True)["here"]["value"]


SIZES = "${case:${scale},{full:300,small:0.5,smoke:[resnet4,vit_small_patch8_224],default:true}}"


@pytest.mark.parametrize(
    ("scale", "expected"),
    [("full", 300), ("small", 0.5), ("smoke", ["resnet4", "vit_small_patch8_224"]), (None, True), ("other", True)],
)
def test_the_entry_of_the_key_is_taken_else_the_default(scale, expected):
    assert resolved(SIZES, scale=scale) == expected


def test_entries_may_be_null_cases_of_their_own_and_interpolations():
    inner = "${case:${scale},{small:${case:${paper},{a:1,default:2}},full:${here.other},default:null}}"
    others = {"paper": "a", "here": {"value": inner, "other": 7}}
    register()
    for scale, expected in (("small", 1), ("full", 7), (None, None)):
        config = OmegaConf.create({**others, "scale": scale})
        assert OmegaConf.to_container(config, resolve=True)["here"]["value"] == expected


def test_a_quoted_interpolation_is_looked_at_only_if_it_is_chosen():
    value = r"${case:${scale},{full:'\${there.length}',default:1}}"
    assert resolved(value, scale=None) == 1
    assert resolved(value, scale="full", there={"length": [3, 4]}) == [3, 4]
    with pytest.raises(InterpolationResolutionError, match=r"there\.length"):
        resolved(value, scale="full")


@pytest.mark.parametrize("scale", [None, "tiny"])
def test_without_entry_and_default_the_error_names_key_value_and_entries(scale):
    with pytest.raises(InterpolationResolutionError) as caught:
        resolved("${case:${scale},{full:300,small:60}}", scale=scale)
    assert f"no entry for {scale!r}, and no default; there are full, small" in str(caught.value)
    assert "full_key: here.value" in str(caught.value)


def test_what_is_no_mapping_is_refused():
    with pytest.raises(InterpolationResolutionError, match="a key and a mapping such as"):
        resolved("${case:${scale},300}", scale="full")
