r"""Resolvers of the configuration: ``${case:KEY,{a:1,b:2,default:3}}`` puts what a choice decides where it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

DEFAULT = "default"
LATER = "${"
"""Begins an entry that is an interpolation, of a full key, and was quoted and escaped."""


def case(key: Any, entries: Mapping[Any, Any]) -> Any:
    r"""Return the entry of a key, or the one called ``default``.

    None, or a key without an entry, takes ``default``. In a configuration entries may be interpolations. OmegaConf
    resolves all of them, chosen or not; one that holds only if it is chosen is written in quotes and escaped, as
    ``{public:'\${protocol.epochs}',default:1}``.

    Raises:
        ValueError: neither an entry nor a default; names the key and the entries.

    >>> case("small", {"full": 300, "small": 60, "default": 30}), case(None, {"full": 300, "default": 30})
    (60, 30)
    """
    if not isinstance(entries, Mapping):
        raise ValueError(f"case takes a key and a mapping such as {{small:60,default:300}}, not {entries!r}")
    if key is not None and key in entries:
        return entries[key]
    if DEFAULT in entries:
        return entries[DEFAULT]
    raise ValueError(f"no entry for {key!r}, and no {DEFAULT}; there are {', '.join(map(str, entries))}")


def register() -> None:
    """Make the resolvers known to OmegaConf, wherever configurations are composed; again does no harm."""
    OmegaConf.register_new_resolver("case", _resolved, replace=True)


def _resolved(key: Any, entries: Mapping[Any, Any], *, _parent_: Any) -> Any:
    found = case(key, entries)
    if isinstance(found, str) and found.startswith(LATER):
        found = OmegaConf.create({"found": found}, parent=_parent_)["found"]
    # A plain list could be read, but not put in the place of the interpolation, as `--cfg job --resolve` does.
    return OmegaConf.create(found) if isinstance(found, (list, dict)) else found
