"""What may be taken out of a run afterwards: models, and figures of attacks at single sites."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from protocols.strict import Strict

__all__ = ["Audit", "Release"]

Attack = Annotated[str, StringConstraints(pattern=r"^A\d{2}$")]


class Release(Strict):
    """What holds models back at the end of a run.

    Nothing of it concerns messages: whoever runs our program keeps a model locked, and takes it out
    no sooner. A changed program has the model in its memory all the same.

    Attributes:
        requires: ids of attacks. Each must have been run on the run with another verdict than FAIL,
            or been accepted.
        until: ``signed``: until then, or until every client signed a waiver for the attack, with an
            owner, a reason and a last day.
    """

    requires: tuple[Attack, ...] = Field(min_length=1, max_length=40)
    until: Literal["signed"] = "signed"


class Audit(Strict):
    """What a site hands on of the attacks that it runs on its own side.

    Attributes:
        share: ids of attacks. Their figures go into what the site hands over without being asked
            for again; figures of other attacks stay at the site, unless it says ``--yes``.
    """

    share: tuple[Attack, ...] = Field(min_length=1, max_length=40)
