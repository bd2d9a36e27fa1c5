"""Which classes may stand in a session's kept state, each by its name; see `codec`."""

from __future__ import annotations

from enum import Enum
from typing import Any

from crypto.masks import MaskSum
from crypto.tagging.oprf import Blinded, KeyShare
from protocols.disclosures._evaluated.evaluation import Evaluation, Uploads
from protocols.disclosures._evaluated.uploads import Upload
from protocols.disclosures.match.aggregator import Broker
from protocols.disclosures.match.protocol.cells import Told
from protocols.disclosures.match.protocol.client import ClientMatching, MatchStep
from protocols.disclosures.match.protocol.tag_service import MatcherDesk, TagDesk
from protocols.disclosures.match.protocol.tagging import TagBatch, Tags, TagServer
from protocols.disclosures.match.protocol.wire import MatchRun
from protocols.disclosures.match.run import MatchSide
from protocols.disclosures.mixed.mixing import Mixer
from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.decoys import Decoyer
from protocols.disclosures.sum.unmasking import Unmasking
from protocols.disclosures.views import (
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
from protocols.evidence.heads import Spoken
from protocols.keys.groups import Group, Slot
from protocols.keys.setup import KeyPhase, Setup
from protocols.plan.steps import Service, Step
from protocols.rounds import Reply, Sealed
from protocols.sessions.collection import Collection, Kept
from protocols.sessions.part import Parcel
from protocols.sessions.phases import Phase
from protocols.sessions.services.asked import Held
from protocols.sessions.table import State
from protocols.wire.gateway import Gateway
from protocols.wire.inbox import Inbox
from protocols.wire.roster import Role
from protocols.wire.where import Where

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
    kind.__name__: kind
    for kind in (Disclosure, KeyPhase, MatchStep, Phase, Role, Service, State, Step)
}
