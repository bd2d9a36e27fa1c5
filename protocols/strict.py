"""A pydantic base that is closed: unknown keys are errors that name the nearest known key."""

from __future__ import annotations

import difflib
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


def nearest(word: str, known: list[str]) -> str:
    """Return a hint such as ``did you mean 'rounds'?``, or the list of known words."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"


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
