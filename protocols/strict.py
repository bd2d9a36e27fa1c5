"""A pydantic base that is closed: unknown keys are errors that name the nearest known key."""

from __future__ import annotations

import difflib
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator


def nearest(word: str, known: list[str]) -> str:
    """Return a hint such as ``did you mean 'rounds'?``, or the list of known words."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"


def problems(error: ValidationError) -> str:
    """Return what is wrong, key by key, without values."""
    return "; ".join(
        f"{'.'.join(str(part) for part in problem['loc']) or 'top level'}: "
        f"{problem['msg'].removeprefix('Value error, ')}"
        for problem in error.errors()
    )


TEXT_LIMIT = 1 << 20  # characters; configurations and policies are about a thousand


class _Loader(yaml.SafeLoader):
    """Safe YAML without aliases, which let a small text grow without bound."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed here")
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


def read_yaml(text: str) -> Any:
    """Parse a small YAML text; raises yaml.YAMLError for aliases and texts above 1 MB."""
    if len(text) > TEXT_LIMIT:
        raise yaml.YAMLError("the text is too long")
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader


class Strict(BaseModel):
    """Frozen and closed; errors never echo the rejected value."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _name_the_nearest_key(cls, values: Any) -> Any:
        if isinstance(values, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for key in values:
                if key not in known:
                    raise ValueError(f"unknown key {str(key)[:40]!r}: {nearest(str(key), known)}")
        return values
