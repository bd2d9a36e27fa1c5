"""How long a party keeps what it has of a run. How long captured rounds are, `Capture` says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, model_validator

from protocols.evidence.capture import Capture
from protocols.strict import Strict
from protocols.wire.roles import Role

__all__ = ["Kept", "Retention", "check_kept"]

Days = Annotated[int, Field(ge=1, le=36_500, strict=True)]


class Kept(Strict):
    """How long the parties of one role keep what they have, in days from a ledger's last entry.

    Attributes:
        ledgers: the ledger, with all else that is left of the run at the party; None: for ever.
        models: the models; None: as long as the ledger.
    """

    ledgers: Days | None = None
    models: Days | None = None

    @model_validator(mode="after")
    def _models_go_first(self) -> Kept:
        if self.ledgers is not None and self.models is not None and self.models > self.ledgers:
            raise ValueError("models are kept no longer than the ledger that says whose they are")
        return self


Retention = dict[Role, Kept]
"""By role; one that is not named keeps what it has for as long as it likes."""


def check_kept(retention: Mapping[Role, Kept], capture: Capture | None) -> None:
    """Raise ValueError if captured rounds are kept longer than the ledger that names them."""
    for role, kept in retention.items():
        if capture is not None and kept.ledgers is not None and kept.ledgers < capture.days:
            raise ValueError(f"{role} keeps captured rounds longer than the ledger that names them")
