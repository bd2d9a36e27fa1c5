"""Tag servers and matcher with their boxes, without any transport (docs/adr/0018)."""

from __future__ import annotations

from collections.abc import Mapping

from crypto.oprf import Spread
from crypto.samplers import Mute
from protocols.disclosures.match.protocol.cells import matched, neighbours, same_canary
from protocols.disclosures.match.protocol.tagging import Bytes, TagServer
from protocols.disclosures.match.protocol.wire import (
    Kind,
    MatchRun,
    handed_bytes,
    read_tags,
    told_bytes,
)
from protocols.errors import BadEnvelope, LocalProtocolError, Replay, RoundLost
from protocols.wire.roles import Role
from protocols.wire.roster import Identity

__all__ = ["MatcherSide", "TagServerSide"]


class TagServerSide(Mute):
    """A tag server with its boxes."""

    __slots__ = ("_me", "_run", "_server")

    def __init__(self, run: MatchRun, me: Identity) -> None:
        if me.party.role is not Role.TAG_SERVER or run.match.mode != "oprf":
            raise LocalProtocolError("Tags are served by tag servers, and only in 'oprf' mode.")
        self._run, self._me, self._server = run, me, TagServer(run.match)

    def begin(self, epoch: int) -> None:
        """Draw this epoch's share of the key."""
        self._server.begin(epoch)

    def answer(self, client: str, epoch: int, box: bytes, spread: Spread = map) -> bytes:
        """Take a client's box, return the box with its answer.

        Raises:
            NotInPlan: beyond the quota; counted.
            BadEnvelope: not that client's, or no points.
        """
        run = self._run
        if client not in run.roster.clients:
            raise BadEnvelope("Tags are made for clients only.")
        points = run.open(box, Kind.POINTS, epoch, self._me, client)
        found = self._server.answer(client, epoch, points, spread)
        return run.close(found, Kind.ANSWER, epoch, self._me, client)

    def alone(self, catalogue: int) -> bytes:
        """Return what this server by itself could look tags up in, for audits."""
        return self._server.alone(catalogue)

    def forget(self) -> None:
        """Drop this epoch's share of the key."""
        self._server.forget()

    def report(self) -> dict[str, int]:
        """Return what stands in the ledger at the end of an epoch."""
        return self._server.report()


class MatcherSide(Mute):
    """The matcher with its boxes. It remembers who stands where, and of tags the latest alone.

    Attributes:
        digest: of the canary that all clients had in the latest epoch.
        tags: of the latest epoch, by client, until they were captured or dropped.
    """

    __slots__ = ("_cells", "_epoch", "_me", "_run", "digest", "tags")

    def __init__(self, run: MatchRun, me: Identity) -> None:
        if me.party.role is not Role.MATCHER:
            raise LocalProtocolError("Tags are compared by the matcher.")
        self._run, self._me, self._epoch = run, me, -1
        self._cells: Mapping[str, int] | None = None
        self.digest = b""
        self.tags: dict[str, Bytes] = {}

    @property
    def cells(self) -> int:
        """How many cells there are; 0 before they are made."""
        return len(set((self._cells or {}).values()))

    def match(self, epoch: int, boxes: Mapping[str, bytes]) -> dict[str, bytes]:
        """Take all clients' boxes, return a box for each.

        Raises:
            Replay: this epoch was matched before.
            BadEnvelope: a box is not its client's; canaries differ (O24).
            RoundLost: in the first epoch, a client is missing: cells are made of all, once.
        """
        run = self._run
        if epoch <= self._epoch:
            raise Replay("Tags of an epoch are compared once.")
        if not run.published and self._cells is None and set(boxes) != set(run.roster.clients):
            raise RoundLost("Cells are made once, of all clients, and some are missing.")
        self._epoch = epoch
        tags: dict[str, Bytes] = {}
        digests: dict[str, bytes] = {}
        vectors: dict[str, bytes] = {}
        for name, box in boxes.items():
            content = run.open(box, Kind.TAGS, epoch, self._me, name)
            digests[name], tags[name], vectors[name] = read_tags(content, run.match.cap)
        self.digest, self.tags = same_canary(digests), tags
        if run.published:
            handed = neighbours(tags, digests, vectors, run.match)
            contents, kind = {n: handed_bytes(one) for n, one in handed.items()}, Kind.HANDED
        else:
            found = matched(tags, digests, run.match, self._cells)
            self._cells = found.cells
            contents, kind = {n: told_bytes(one, run) for n, one in found.told.items()}, Kind.TOLD
        return {n: run.close(content, kind, epoch, self._me, n) for n, content in contents.items()}
