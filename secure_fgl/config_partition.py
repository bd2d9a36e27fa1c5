"""Which client holds what, and what clients are called."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from protocols.strict import Strict
from secure_fgl.run.naming import client_names, misnamed

__all__ = ["PartitionConfig"]


class PartitionConfig(Strict):
    """Which client holds what.

    Attributes:
        clients: how many there are.
        names: what they are called, in place of `clients`; without it ``client-1``, ``client-2``, …
            Of own data, the name of a client is that of its folder.
    """

    name: str = "louvain_balanced"
    clients: int = Field(default=5, ge=1, le=100_000)
    names: tuple[str, ...] = Field(default=(), max_length=100_000)
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _names_are_counted(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(names := values.get("names"), list | tuple):
            return values | {"clients": values.get("clients", len(names))} if names else values
        return values

    @field_validator("names")
    @classmethod
    def _are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := misnamed(names):
            raise ValueError(wrong)
        return names

    @model_validator(mode="after")
    def _are_as_many(self) -> PartitionConfig:
        if self.names and len(self.names) != self.clients:
            raise ValueError(
                f"there are {len(self.names)} names, and clients says {self.clients}; leave "
                "clients out, since names count themselves"
            )
        return self

    @property
    def called(self) -> tuple[str, ...]:
        """The clients' names, in the order of plans: sorted."""
        return tuple(sorted(self.names)) or client_names(self.clients)
