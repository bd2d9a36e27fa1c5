"""What disclosures that are computed on ciphertexts have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from crypto.samplers import Stream
from crypto.signing import SIGNATURE_BYTES
from protocols.disclosures._base.protect import Protection, Release
from protocols.disclosures._base.rules import Limits, Rules
from protocols.disclosures._base.view import Answers
from protocols.disclosures._base.words import Chain, Planned, Words
from protocols.disclosures._evaluated.ciphers import Shape, shape_of
from protocols.disclosures._evaluated.guards import evaluated
from protocols.disclosures._evaluated.uploads import (
    Upload,
    check_upload,
    enciphered,
    signed_upload,
    split_upload,
)
from protocols.disclosures.names import Disclosure
from protocols.forms import Form
from protocols.messages import Message
from protocols.plan.builder import PlanBuilder, Times
from protocols.plan.plan import Item, Layout
from protocols.plan.steps import Step
from protocols.wire.control import (
    Cosines,
    CosineSeed,
    Examine,
    Reveal,
    RowBoxes,
    RowSeeds,
    SignedCut,
    Witnessed,
)
from protocols.wire.envelope import Header, header_bytes
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role
from protocols.wire.run_context import RunContext

# The plan items of what is computed on ciphertexts, recomputed by witnesses, and then opened.

_CLIENT, _AGGREGATOR = str(Role.CLIENT), str(Role.AGGREGATOR)
_AUTHORITY, _WITNESS = str(Role.KEY_AUTHORITY), str(Role.WITNESS)
_SEALED = Disclosure.SEALED


def plan_upload(
    planner: PlanBuilder, name: str, kinds: Sequence[type[Message]], times: Times
) -> Shape:
    """Add the upload of one evaluated message: a signature and ciphertexts."""
    disclosure = kinds[0].disclosure
    shape = shape_of(kinds, planner.policy, planner.dims)
    size = SIGNATURE_BYTES + shape.upload_bytes
    route = (_CLIENT, _AGGREGATOR)
    planner.add(
        name, disclosure, Step.UP, route, kinds, disclosure, times,
        body=size, layout=shape.layout,
    )  # fmt: skip
    return shape


def plan_results(
    planner: PlanBuilder,
    name: str,
    upload: str,
    shape: Shape,
    times: Times,
    *,
    signs: bool = False,
) -> None:
    """Add what it takes to open the results that are computed from one Ask's uploads.

    Args:
        planner: collects the items.
        name: of the exchange that has them opened.
        upload: id of the item that brings the uploads.
        shape: of one upload.
        times: of the exchange.
        signs: the key authority signs how the cosines cut the cluster.
    """
    clients, disclosure = len(planner.clients), shape.disclosure
    guard = evaluated(planner.policy.chain(disclosure))
    witnesses = guard.witnesses if guard is not None else 0
    often = planner.often(times)  # disjoint clusters may be compared and weighed one by one
    cosines = disclosure is Disclosure.SIMILARITY
    header = header_bytes(upload, planner.longest, planner.name(_AGGREGATOR))
    dims = {
        "upload_headers": clients * (2 + header + SIGNATURE_BYTES),
        "uploads": clients * shape.upload_bytes,
        "results": shape.results(clients) * shape.result_bytes,
        "witnesses": witnesses,
        "pairs": shape.results(clients),
        "row_boxes": clients * shape.row_bytes if not cosines else 0,
    }

    def add(
        step: Step,
        route: tuple[str, str],
        kinds: tuple[type[Message], ...],
        names: tuple[str, ...],
        said: dict[str, str],
    ) -> None:
        chosen = {key: dims[key] for key in names}
        planner.add(name, disclosure, step, route, kinds, _SEALED, often, dims=chosen, said=said)

    if witnesses:
        seeds = CosineSeed if cosines else RowSeeds
        said = {"witness": _SHOWN[disclosure], "network": "sender, recipient, time and size"}
        route, sizes = (_AGGREGATOR, _WITNESS), ("upload_headers", "uploads")
        add(Step.WITNESS, route, (Examine, seeds), sizes, said)
        said = {"aggregator": "that the witness computed the same bytes"}
        add(Step.WITNESSED, (_WITNESS, _AGGREGATOR), (Witnessed,), (), said)
    sizes3 = ("upload_headers", "results", "witnesses")
    said = {"key_authority": _OPENER[disclosure]}
    add(Step.OPEN, (_AGGREGATOR, _AUTHORITY), (Reveal,), sizes3, said)
    kinds: tuple[type[Message], ...] = (Cosines,) if cosines else (RowBoxes,)
    kinds += (SignedCut,) if signs else ()
    said = {"aggregator": disclosure.meaning if cosines else "size only"}
    if not cosines:
        said["addressee"] = "its own row, still blinded"
    route = (_AUTHORITY, _AGGREGATOR)
    add(Step.OPENED, route, kinds, ("pairs",) if cosines else ("row_boxes",), said)


_SHOWN = {
    Disclosure.SIMILARITY: "who took part; ciphertexts, and no value in them",
    Disclosure.WEIGHTED_SUM: "the weights of every receiver, and so roughly the cosines where they "
    "are computed from them; ciphertexts, and no value in them",
}
_OPENER = {
    Disclosure.SIMILARITY: "the matrix of pairwise cosines to about 2^-20, and who took part when",
    Disclosure.WEIGHTED_SUM: "uniform noise, how alike two receivers' weights are (all weights "
    "where they are computed from cosines, which it opened), and who took part when",
}


# From values to ciphertexts on which results are computed, signed for witnesses (O4).


class EvaluatedProtection(Protection):
    """Ciphertexts where the chain computes on them, and else the message as it is."""

    def layout(
        self, context: RunContext, item: Item, kinds: tuple[type[Message], ...]
    ) -> Layout | None:
        """Return the grid of what is weighed; directions have none."""
        if not context.enciphers(item):
            return None
        return shape_of(kinds, context.policy, context.dims(item)).layout

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Encrypt and sign."""
        context, item = release.context, release.item
        if not context.enciphers(item):
            return super().body(release, header, prepared)
        shape = shape_of(release.kinds, context.policy, release.dims)
        stream, key = Stream(release.seeded("rounding")), context.key_of(item.disclosure)
        (message,) = release.messages
        body, clipped = enciphered(message, shape, key, context.run, release.dims, stream)
        return signed_upload(body, header, context.me.signing.sign), clipped


# Rules that what is compared and what is weighed have in common.


class EvaluatedRules(Rules):
    """Exactly one chain, or in clear.

    Attributes:
        chain: the names of its guards, in order.
    """

    chain: ClassVar[tuple[str, ...]]

    def check(self, chain: Chain) -> None:
        """Hold what is computed on ciphertexts to its one chain."""
        if evaluated(chain) is None:
            super().check(chain)
        elif tuple(guard.guard for guard in chain) != self.chain:
            raise ValueError(f"needed are exactly {', '.join(self.chain)}")

    def accounted(self, chain: Chain) -> bool:
        """Results have no noise, so none can be accounted."""
        return evaluated(chain) is None

    def alone(self, chain: Chain) -> bool:
        """Results are opened for one message an exchange."""
        return evaluated(chain) is not None

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse what cannot be computed with while it is encrypted."""
        if evaluated(policy.rules.get(kind.disclosure, ())) is None:
            return None
        if any(field.wire not in ("f4", "f8") for field in kind.fields):
            return f"message {kind.__name__} holds counts, which cannot be weighed or compared"
        return self.not_computed(kind, form, policy)

    def not_computed(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Say why just this cannot be computed on ciphertexts; None if it can."""
        return None


# What the aggregator holds of uploads that results are computed on: ciphertexts, signed (O4).


class Uploaded(Answers):
    """The ciphertexts of one Ask; in clear the messages."""

    fixes: ClassVar[bool] = True

    @property
    def protected(self) -> bool:
        """Whether they are encrypted."""
        return self._context.enciphers(self.item)

    def take(self, incoming: Incoming) -> None:
        """Keep one upload; raises BadEnvelope if a witness would refuse it."""
        if self.protected:
            self._check_key(incoming)
            verify = self._context.roster.party(incoming.header.sender).verify
            check_upload(incoming.header, *split_upload(incoming.body), verify)
        super().take(incoming)

    def uploads(self) -> dict[str, Upload]:
        """Return the survivors' uploads by client, sorted, and forget them (O9)."""
        handed = self.handed_over().items()
        return {member: Upload(kept.header, *split_upload(kept.body)) for member, kept in handed}


# What plans say of results that are computed on ciphertexts (O3, O4, O10).

CRAFTED = (
    "a client that sends a crafted ciphertext and works with the aggregator or a witness can bring "
    "the epoch's key out through what is opened, and so every message compared or weighed in it"
)
UNWITNESSED = (
    "nobody witnesses what is compared or weighed, as the policy asks (witnesses: 0), so an active "
    "aggregator can have a single upload opened"
)


class EvaluatedWords(Words):
    """What compared and weighed messages have in common.

    Attributes:
        told: per role, what it learns of an upload and of what is computed from it.
        said: the warning of what is opened.
    """

    told: ClassVar[Mapping[str, str]]
    said: ClassVar[str]

    def learns(self, chain: Chain, network: str) -> dict[str, str]:
        """Return, per role, what an upload tells it; without witnesses, of a semi-honest one."""
        found = {**self.told, "other clients": "nothing", "network": network}
        guard = evaluated(chain)
        if guard is not None and not guard.witnesses:
            # Nobody keeps the aggregator to what it should have opened.
            del found["witness"]
            found["aggregator"] += ", if it is semi-honest"
        return found

    def opened(self, plan: Planned) -> list[Item]:
        """Return the items with which results of this disclosure are opened."""
        place = (self.disclosure, Step.OPEN)
        return [item for item in plan.items if (item.part, item.step) == place]

    def warnings(self, plan: Planned) -> list[str]:
        """Warn of what is opened, of crafted ciphertexts, and where nobody witnesses."""
        found = []
        witnessed = {(i.exchange, i.part) for i in plan.items if i.step is Step.WITNESS}
        for item in self.opened(plan):
            unseen = (item.exchange, item.part) not in witnessed
            found += [*([UNWITNESSED] if unseen else []), self.said, CRAFTED]
        return list(dict.fromkeys(found))
