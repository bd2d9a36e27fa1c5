"""Which classes may stand in a session's kept state, each by its name; see `codec`."""

from __future__ import annotations

from enum import Enum
from typing import Any

from crypto.masks import MaskSum
from crypto.oprf import Blinded, KeyShare
from protocols.cells import Told
from protocols.decoys import Decoyer
from protocols.desks import MatcherDesk, TagDesk
from protocols.disclosures import Disclosure
from protocols.gateway import Gateway
from protocols.groups import Group, Slot
from protocols.heads import Spoken
from protocols.inbox import Inbox
from protocols.match_side import MatchSide
from protocols.match_wire import MatchRun
from protocols.matching import ClientMatching, MatchStep
from protocols.mixing import Mixer
from protocols.papers import Where
from protocols.roster import Role
from protocols.rounds import Reply, Sealed
from protocols.sessions.base import Parcel
from protocols.sessions.brokering import Broker
from protocols.sessions.collection import Collection, Kept
from protocols.sessions.evaluation import Evaluation, Held, Uploads
from protocols.sessions.setup import Phase, Setup
from protocols.sessions.table import State
from protocols.steps import Service, Step
from protocols.tagging import TagBatch, Tags, TagServer
from protocols.unmasking import Unmasking
from protocols.uploads import Upload
from protocols.views import (
    Cells,
    CellsView,
    ClearView,
    CosinesView,
    EachView,
    HandedView,
    Mixture,
    TotalView,
    WeighedView,
)

__all__ = ["ENUMS", "OBJECTS"]

OBJECTS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(ClearView, Collection, CosinesView, Decoyer, EachView, Evaluation, Gateway, Group),
        *(HandedView, Held, Inbox, Kept, MaskSum, Mixer, Mixture, Parcel, Reply, Sealed, Setup),
        *(Slot, Spoken, TotalView),
        *(Blinded, Broker, Cells, CellsView, ClientMatching, KeyShare, MatcherDesk, MatchRun),
        *(MatchSide, TagBatch, TagDesk, Tags, TagServer, Told),
        *(Unmasking, Upload, Uploads, WeighedView, Where),
    )
}
ENUMS: dict[str, type[Enum]] = {
    kind.__name__: kind for kind in (Disclosure, MatchStep, Phase, Role, Service, State, Step)
}
