"""Who must sign a plan before it runs, with the public key that each signs with."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

__all__ = ["Approvers"]

_Name = Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,40}$")]
_Key = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def _distinct(found: dict[str, str]) -> dict[str, str]:
    if len(set(found.values())) != len(found):
        raise ValueError("two names of approvals have one key, and would be one approver")
    return found


Approvers = Annotated[dict[_Name, _Key], Field(max_length=20), AfterValidator(_distinct)]
"""Name -> Ed25519 public key, 64 lower-case hexadecimal digits; at most twenty."""
