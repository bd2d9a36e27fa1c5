"""What of what is matched stands in a session's kept state."""

from __future__ import annotations

from crypto.tagging.oprf import Blinded, KeyShare
from protocols.disclosures.match.protocol.broker import Broker
from protocols.disclosures.match.protocol.cells import Told
from protocols.disclosures.match.protocol.client import ClientMatching, MatchStep
from protocols.disclosures.match.protocol.tag_service import MatcherSide, TagServerSide
from protocols.disclosures.match.protocol.tagging import TagBatch, Tags, TagServer
from protocols.disclosures.match.protocol.wire import MatchRun
from protocols.disclosures.match.run import MatchSide
from protocols.disclosures.match.view import Cells, CellsView, Matchable

KEPT = (
    *(Blinded, Broker, Cells, CellsView, ClientMatching, KeyShare, Matchable, MatcherSide),
    *(MatchRun, MatchSide, MatchStep, TagBatch, TagServerSide, Tags, TagServer, Told),
)
