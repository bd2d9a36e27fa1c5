"""MAXIMUM: its rules, plan, words, protection and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from crypto.samplers import Stream, entropy
from crypto.signing import canonical
from protocols.disclosures._base.plan import Planning
from protocols.disclosures._base.protect import Protection, Release
from protocols.disclosures._base.rules import Limits, Rules
from protocols.disclosures._base.view import Answers, OneVerb
from protocols.disclosures._base.words import Chain, Planned, Words
from protocols.disclosures.maximum.guards import Levels
from protocols.disclosures.maximum.levels import Words as Numbers
from protocols.disclosures.maximum.levels import largest, raised, split
from protocols.disclosures.maximum.messages import SecondShares, SecondTotal
from protocols.disclosures.names import Disclosure
from protocols.errors import LocalProtocolError, UnfitMessage
from protocols.forms import Exchange, Form
from protocols.keys.pairs import BOX_OVERHEAD, close_box
from protocols.messages import Message
from protocols.plan.builder import UP, PlanBuilder, Times
from protocols.plan.steps import Part, Step
from protocols.policy.guard import find, guard_of
from protocols.rounds import View
from protocols.wire.codec import encode
from protocols.wire.envelope import Header, Where
from protocols.wire.roles import Role
from protocols.wire.run_context import RunContext

# Which chain protects a MAXIMUM message, and which messages fit it.


class MaximumRules(Rules):
    """Small integers, level by level in two shares; or in clear."""

    protecting = frozenset({"levels", "unsafe_clear"})
    applied = protecting | {"seal"}
    order = "levels, seal"

    def check(self, chain: Chain) -> None:
        """Hold it to its one chain."""
        if not find(chain, "levels"):
            super().check(chain)
        elif tuple(guard.guard for guard in chain) != ("levels", "seal"):
            raise ValueError("needed are exactly levels, seal")

    def accounted(self, chain: Chain) -> bool:
        """Tell that a maximum has no noise, so none can be accounted."""
        return not find(chain, "levels")

    def alone(self, chain: Chain) -> bool:
        """Tell that an exchange opens one maximum."""
        return find(chain, "levels") is not None

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse what is no integer."""
        if len(kind.fields) == 1 and kind.fields[0].wire == "u8":
            return None
        return f"message {kind.__name__} holds more than one field of counts"


RULES = MaximumRules()


# The plan items of a maximum: two shares go up, and the second ones are added elsewhere.

_AGGREGATOR, _AUTHORITY = str(Role.AGGREGATOR), str(Role.KEY_AUTHORITY)


def share_bytes(kind: type[Message], top: int, dims: Mapping[str, int]) -> int:
    """Return the size of one share of a message: 8 bytes for each level and integer."""
    return 8 * top * int(np.prod(kind.fields[0].sizes(dims), dtype=np.int64))


class MaximumPlanning(Planning):
    """A share for the aggregator and a box for the key authority."""

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add the shares of an Ask, and what it takes to open their total."""
        levels = guard_of(plan.policy.chain(self.disclosure), Levels)
        if levels is None:
            return super().up(plan, name, kinds, times)
        share = share_bytes(kinds[0], levels.top, plan.dims)
        box, part, often = share + BOX_OVERHEAD, self.disclosure, plan.often(times)
        plan.add(name, part, Step.UP, UP, kinds, part, times, body=share + box)
        said = {"key_authority": "uniform noise, and who took part when"}
        dims, sealed = {"level_boxes": box * len(plan.clients)}, Disclosure.SEALED
        route = (_AGGREGATOR, _AUTHORITY)
        plan.add(name, part, Step.OPEN, route, (SecondShares,), sealed, often, dims=dims, said=said)
        said, dims = {"aggregator": part.meaning}, {"level_total": share}
        route = (_AUTHORITY, _AGGREGATOR)
        plan.add(
            name, part, Step.OPENED, route, (SecondTotal,), sealed, often, dims=dims, said=said
        )
        return None


PLAN = MaximumPlanning(Disclosure("MAXIMUM"))


# What plans say of a maximum.

LARGEST = (
    "the largest integer of a cohort is one client's own; who works with all others knows whose "
    "it is, and two cohorts that differ by one client may tell that client's"
)


class MaximumWords(Words):
    """Only the largest integer is opened."""

    limits = (LARGEST,)
    computed = "the shares of a maximum"

    def learns(self, chain: Chain, network: str) -> dict[str, str]:
        """Return, per role, what one client's integer tells it."""
        if not find(chain, "levels"):
            return super().learns(chain, network)
        return {
            "aggregator": f"{self.disclosure.meaning} (and who took part)",
            "key_authority": "uniform noise, and who took part when",
            "other clients": "nothing",
            "network": network,
        }

    def together(self, chain: Chain) -> dict[str, str]:
        """Return what those see together who hold both shares."""
        if not find(chain, "levels"):
            return {}
        return {"aggregator and key authority, of a maximum": "EVERY single integer"}

    def warnings(self, plan: Planned) -> list[str]:
        """Warn of what the largest integer tells."""
        opened = any((i.part, i.step) == (self.disclosure, Step.OPEN) for i in plan.items)
        return [LARGEST] if opened else []


WORDS = MaximumWords(Disclosure("MAXIMUM"))


# From integers to two shares of one number a level.


def box_info(header: Header, item: str, sender: str) -> bytes:
    """Return what a box is bound to: run, plan, item, place, cohort, what was given, and sender.

    Args:
        header: of the upload, or of a request about it: both say the same of these.
        item: id of the upload.
        sender: who sealed it.
    """
    place = [header.round, header.exchange, header.attempt, header.cohort, header.given]
    return b"secure-fgl/maximum\0" + canonical([header.run, header.plan, item, *place, sender])


class MaximumProtection(Protection):
    """One share is sealed to the aggregator with the envelope, one to the key authority inside."""

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Cap, raise and split; numbers and shares are drawn from the operating system (O15)."""
        levels = guard_of(release.chain, Levels)
        if levels is None:
            return super().body(release, header, prepared)
        context, (message,) = release.context, release.messages
        encode([message], release.dims)  # raises for a wrong shape
        values = np.ravel(np.asarray(getattr(message, message.fields[0].name)))
        if values.dtype.kind not in "iu" or (values < 0).any():
            raise UnfitMessage(f"{type(message).__name__} is not of whole numbers from 0 on.")
        capped = np.minimum(values.astype(np.int64), levels.top)
        numbers = raised(capped, levels.top, Stream(entropy(32)))
        shares = split(numbers, Stream(entropy(32)))
        first, second = (share.astype("<u8").tobytes() for share in shares)
        info = box_info(header, release.item.id, context.me.party.name)
        authority = context.roster.one(Role.KEY_AUTHORITY)
        box = close_box(second, context.me, authority, info)
        return first + box, bool((values > levels.top).any())


PROTECT = MaximumProtection()


# What the aggregator holds of a maximum: first shares and boxes, and in the end the maximum.


class MaximumView(OneVerb):
    """MAXIMUM: the cohort's largest integers, as a message of the same type."""

    verb = "maximum"

    def __init__(self, found: Message) -> None:
        self._found = found

    def _answer(self, **options: Any) -> Message:
        return self._found


class Raised(Answers):
    """The shares of one Ask.

    Attributes:
        first: the total of the first shares, shape (top, n), until the second is here.
        totals: one number a level, shape (top, n), once they were opened.
    """

    verb: ClassVar[str] = MaximumView.verb
    fixes: ClassVar[bool] = True

    def __init__(self, context: RunContext, exchange: Exchange, where: Where, part: Part) -> None:
        super().__init__(context, exchange, where, part)
        self.first: Numbers | None = None
        self.totals: Numbers | None = None

    @property
    def top(self) -> int:
        """The highest level; 0 in clear."""
        levels = guard_of(self._context.policy.chain(self.item.disclosure), Levels)
        return levels.top if levels is not None else 0

    @property
    def share(self) -> int:
        """Bytes of a first share, behind which the box stands."""
        return self._context.find(self.exchange.name, self.part, Step.OPENED).dims["level_total"]

    def words(self, data: bytes) -> Numbers:
        """Return numbers, shape (top, n), of their bytes."""
        return np.frombuffer(data, dtype="<u8").astype(np.uint64).reshape(self.top, -1)

    def views(self) -> dict[type[Message], View]:
        """Return the largest integers; raises LocalProtocolError if they are not here."""
        if not self.top:
            return super().views()
        if self.totals is None:
            raise LocalProtocolError("The maximum was not opened yet.")
        (kind,) = self.kinds
        return {kind: MaximumView(_message(kind, largest(self.totals), self.dims))}

    @classmethod
    def clear(
        cls, kind: type[Message], sent: Mapping[str, Message], dims: Mapping[str, int], **more: Any
    ) -> Message:
        """Return the largest integers of messages that came in clear."""
        (field,) = kind.fields
        rows = np.stack([np.ravel(getattr(message, field.name)) for message in sent.values()])
        return _message(kind, rows.max(axis=0), dims)


def _message(kind: type[Message], values: Any, dims: Mapping[str, int]) -> Message:
    (field,) = kind.fields
    shaped = values.reshape(field.sizes(dims))
    return kind(**{field.name: shaped if field.shape else int(shaped)})


VIEW = Raised
