"""Making a plan from an algorithm's form, a policy and the shape of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crypto.bfv import Bfv
from crypto.hpke import SEAL_OVERHEAD
from crypto.quantiser import Packing
from crypto.signatures import SIGNATURE_BYTES
from protocols.boxes import box_bytes, by_peers
from protocols.codec import bundle_bytes
from protocols.control import (
    Acknowledgement,
    Boxes,
    Call,
    Key,
    KeyCall,
    Opened,
    OpenRequest,
    PairSecret,
    Refusal,
)
from protocols.disclosures import Disclosure
from protocols.envelope import envelope_bytes, header_bytes
from protocols.errors import PolicyError
from protocols.forms import Algorithm, Exchange
from protocols.guards import Clip, Guard, Quantise, UnsafeClear, describe, find
from protocols.learns import BUDGET_WITHOUT_NOISE, learns, warnings
from protocols.messages import Message
from protocols.plan import DataPlan, Item, Plan
from protocols.policy import PrivacyPolicy
from protocols.roster import EVERYONE, Role
from protocols.schema import message_plan
from protocols.sums import SumLayout

AGGREGATOR_NAME = "aggregator"
AUTHORITY_NAME = "key-authority"
_CLIENT, _AGGREGATOR, _AUTHORITY = str(Role.CLIENT), str(Role.AGGREGATOR), str(Role.KEY_AUTHORITY)


def wire_kinds(kinds: Sequence[type[Message]]) -> tuple[type[Message], ...]:
    """Return what a downward bundle holds on the wire: rows sealed by peers travel as Boxes."""
    return tuple(Boxes if by_peers(kind) else kind for kind in kinds)


def sum_layout(
    kinds: Sequence[type[Message]], chain: tuple[Guard, ...], dims: Mapping[str, int]
) -> SumLayout:
    """Return the integer layout of a SUM bundle under the policy's chain."""
    clip, quantise = find(chain, "clip"), find(chain, "quantise")
    if not isinstance(clip, Clip) or not isinstance(quantise, Quantise):
        raise ValueError("a SUM chain needs clip and quantise")  # the policy checks it too
    return SumLayout(kinds, clip, quantise, dims)


class _Planner:
    """Collects the items of one plan; every size comes from the code that later makes the bytes."""

    def __init__(
        self,
        policy: PrivacyPolicy,
        clients: Sequence[str],
        dims: dict[str, int],
        scheme: Bfv | None,
    ) -> None:
        self.policy, self.clients, self.dims, self.scheme = policy, clients, dims, scheme
        self.items: list[Item] = []
        self.longest = max(clients, key=len)

    def name(self, role: str) -> str:
        names = {_CLIENT: self.longest, _AGGREGATOR: AGGREGATOR_NAME, _AUTHORITY: AUTHORITY_NAME}
        return names.get(role, EVERYONE)

    def add(  # noqa: PLR0913 - an item has that many facts
        self,
        id: str,
        route: tuple[str, str],
        kinds: Sequence[type[Message]],
        disclosure: Disclosure,
        times: tuple[int, int],
        *,
        body: int | None = None,
        layout: SumLayout | None = None,
        dims: Mapping[str, int] | None = None,
        said: Mapping[str, str] | None = None,
    ) -> None:
        chain = self.policy.chain(disclosure)
        extra = dict(dims or {})
        size = bundle_bytes(kinds, {**self.dims, **extra}) if body is None else body
        boxed = disclosure is Disclosure.SEALED and body is not None  # sealed inside, row by row
        sealed = SEAL_OVERHEAD if find(chain, "seal") and not boxed else 0
        header = header_bytes(id, self.name(route[0]), self.name(route[1]))
        known = learns(disclosure, chain, up=route[0] == _CLIENT)
        self.items.append(
            Item(
                id=id,
                sender=route[0],
                recipient=route[1],
                disclosure=disclosure,
                messages=tuple(message_plan(k, {**self.dims, **extra}, layout) for k in kinds),
                guards=tuple(describe(guard) for guard in chain),
                unsafe=any(isinstance(guard, UnsafeClear) for guard in chain),
                bytes=envelope_bytes(header, size + sealed),
                body=size,
                per_round=times[0],
                times=times[1],
                dims=extra,
                learns=dict(said) if said is not None else known,
            )
        )

    def exchange(self, exchange: Exchange, rounds: int) -> None:
        times = (exchange.per_round, exchange.times(rounds))
        down = wire_kinds(exchange.given)
        boxes = sum(box_bytes(k, self.dims) for k in exchange.given if by_peers(k))
        self.add(
            f"{exchange.name}.down",
            (_AGGREGATOR, _CLIENT),
            (Call, *down),
            exchange.given_disclosure,
            times,
            dims={"boxes": boxes * len(self.clients)} if boxes else None,
        )
        for disclosure in dict.fromkeys(kind.disclosure for kind in exchange.back):
            kinds = tuple(kind for kind in exchange.back if kind.disclosure is disclosure)
            self.up(exchange.name, disclosure, kinds, times)
        if not exchange.back:
            route = (_CLIENT, _AGGREGATOR)
            said = {"aggregator": "that the message arrived"}
            self.add(
                f"{exchange.name}.ack",
                route,
                (Acknowledgement,),
                Disclosure.SEALED,
                times,
                said=said,
            )

    def up(
        self,
        name: str,
        disclosure: Disclosure,
        kinds: tuple[type[Message], ...],
        times: tuple[int, int],
    ) -> None:
        id, route = f"{name}.up.{disclosure}", (_CLIENT, _AGGREGATOR)
        chain = self.policy.chain(disclosure)
        if disclosure is Disclosure.SEALED:
            size = sum(box_bytes(kind, self.dims) for kind in kinds) * len(self.clients)
            self.add(id, route, kinds, disclosure, times, body=size)
        elif disclosure is Disclosure.SUM:
            layout = sum_layout(kinds, chain, self.dims)
            if find(chain, "he"):
                coefficients = self._coefficients(layout)
                size = self._ciphertexts(coefficients) * self._bfv.ciphertext_bytes
                self.add(id, route, kinds, disclosure, times, body=size, layout=layout)
                self._opening(name, coefficients, size, times)
            else:
                size = layout.length * integer_bytes(layout.bits)
                self.add(id, route, kinds, disclosure, times, body=size, layout=layout)
        else:
            self.add(id, route, kinds, disclosure, times)

    @property
    def _bfv(self) -> Bfv:
        if self.scheme is None:
            raise ValueError("an 'he' chain needs an encryption scheme")
        return self.scheme

    def _coefficients(self, layout: SumLayout) -> int:
        packing = Packing(layout.bits, len(self.clients), self._bfv.plain_bits)
        return packing.coefficients(layout.length)

    def _ciphertexts(self, coefficients: int) -> int:
        return -(-coefficients // self._bfv.degree)

    def _opening(self, name: str, coefficients: int, total: int, times: tuple[int, int]) -> None:
        # Disjoint clusters may be opened one by one, each at least the smallest cohort.
        groups = max(1, len(self.clients) // self.policy.smallest_cohort)
        often = (times[0] * groups, times[1] * groups)
        sender = header_bytes(f"{name}.up.{Disclosure.SUM}", self.longest, AGGREGATOR_NAME)
        headers = len(self.clients) * (2 + sender + SIGNATURE_BYTES)
        opened = self._ciphertexts(coefficients) * self._bfv.degree * 8
        self.add(
            f"{name}.open",
            (_AGGREGATOR, _AUTHORITY),
            (OpenRequest,),
            Disclosure.SEALED,
            often,
            dims={"he_total": total, "he_headers": headers},
            said={"key_authority": "uniform noise, and who took part when"},
        )
        self.add(
            f"{name}.opened",
            (_AUTHORITY, _AGGREGATOR),
            (Opened,),
            Disclosure.SEALED,
            often,
            dims={"he_opened": opened},
            said={"aggregator": "only the cohort's total"},
        )

    def _pairs(self) -> None:
        boxes = box_bytes(PairSecret, self.dims) * len(self.clients)
        sealed, said = Disclosure.SEALED, {"aggregator": "size only", "addressee": "its own row"}
        route = (_CLIENT, _AGGREGATOR)
        self.add("pair.up.SEALED", route, (PairSecret,), sealed, (0, 1), body=boxes, said=said)
        route = (_AGGREGATOR, _CLIENT)
        self.add("pair.down", route, (Boxes,), sealed, (0, 1), dims={"boxes": boxes}, said=said)

    def control(self) -> None:
        encrypted = Disclosure.SUM in self.policy.rules and find(
            self.policy.chain(Disclosure.SUM), "he"
        )
        if encrypted:
            public = Disclosure.PUBLIC
            self.add("key.call", (_AGGREGATOR, _AUTHORITY), (KeyCall,), public, (0, 1), said={})
            said = {"everyone": "the public key of this run"}
            self.add("key.offer", (_AUTHORITY, EVERYONE), (Key,), public, (0, 1), said=said)
        if Disclosure.SUM in self.policy.rules and find(self.policy.chain(Disclosure.SUM), "mask"):
            self._pairs()
        said = {"aggregator": "one code of a closed list"}
        for role in (_CLIENT, _AUTHORITY) if encrypted else (_CLIENT,):
            route = (role, _AGGREGATOR)
            self.add(f"refusal.{role}", route, (Refusal,), Disclosure.SEALED, (0, 1), said=said)


def integer_bytes(bits: int) -> int:
    """Return the bytes of one quantised integer that leaves in clear."""
    return 2 if bits <= 16 else 4


def _dims(
    algorithm: Algorithm[Any], data: DataPlan, clients: Sequence[str], scheme: Bfv | None
) -> dict[str, int]:
    """Return the sizes of all named dimensions, the algorithm's and the plan's own."""
    if len(set(clients)) != len(clients):
        raise PolicyError("A client is named twice.", fix="give every client a name of its own")
    dims = {
        "records": data.records,
        "cohort": len(clients),
        "roster_mask": -(-len(clients) // 8),
        "he_public_key": scheme.public_key_bytes if scheme else 0,
    }
    if taken := sorted(set(dims) & set(algorithm.dims)):
        raise ValueError(
            f"algorithm {algorithm.name!r}: {taken[0]!r} is a dimension of the plan's own; "
            "give the algorithm's dimension another name"
        )
    return {**algorithm.dims, **dims}


def make_plan(
    algorithm: Algorithm[Any],
    policy: PrivacyPolicy,
    *,
    data: DataPlan,
    clients: Sequence[str],
    rounds: int,
    scheme: Bfv | None,
) -> Plan:
    """Return the plan of a run. Nothing of any client's data is looked at.

    Args:
        algorithm: its first admitted form is planned.
        policy: decides form, guards and minimum cohort.
        data: public facts and padded bounds.
        clients: names of the clients that will take part.
        rounds: number of rounds.
        scheme: the encryption really used here (its sizes stand in the plan); None without ``he``.

    Raises:
        NotAdmitted: no form of the algorithm fits the policy.
        CohortTooSmall: fewer clients than the policy's minimum.
    """
    policy = policy.checked()
    form = policy.admit(algorithm)
    policy.check_cohort(len(clients))
    if scheme is not None and len(clients) > scheme.max_terms:
        raise PolicyError(
            f"{scheme.name} adds at most {scheme.max_terms} uploads exactly.",
            fix="split the federation, or choose another protection for sums",
        )
    dims = _dims(algorithm, data, clients, scheme)
    planner = _Planner(policy, clients, dims, scheme)
    planner.control()
    for exchange in form.exchanges:
        planner.exchange(exchange, rounds)
    return Plan(
        algorithm=algorithm.name,
        form=form.name,
        rounds=rounds,
        clients=tuple(sorted(clients)),
        data=data,
        policy=policy.name,
        policy_digest=policy.digest,
        smallest_cohort=policy.smallest_cohort,
        scheme=scheme.name if scheme else "none",
        budget=BUDGET_WITHOUT_NOISE,
        warnings=tuple(warnings(planner.items, data)),
        dims=dims,
        items=tuple(planner.items),
    )
