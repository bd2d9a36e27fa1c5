"""The schemes under which cosines (O3) and weighted rows (O10) are computed on ciphertexts.

Their keys, who witnesses, and how large everything is: all of it follows from plan and policy, so
that every party computes the same. A row is one receiver's weighted combination.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, cast

import numpy as np

from crypto.quantiser import Packing
from protocols.disclosures._evaluated.guards import evaluated
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import encryption
from protocols.disclosures.sum.layout import SumLayout
from protocols.disclosures.weighted_sum.guards import Weigh
from protocols.errors import LocalProtocolError
from protocols.keys.pairs import BOX_OVERHEAD
from protocols.messages import Message, PublicMessage
from protocols.plan.plan import Item
from protocols.plan.steps import Part, Step
from protocols.policy.guard import find
from protocols.policy.guards import Clip, Quantise
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.control import CosineKey, Key, WeighKey

if TYPE_CHECKING:
    from crypto.homomorphic.similarity import Similarity
    from crypto.homomorphic.weighted import WeightedBfv

EVALUATED = (Disclosure.SIMILARITY, Disclosure.WEIGHTED_SUM)
"""The disclosures whose results are computed on ciphertexts, where the policy protects them."""

COSINE_LEVELS = 1 << 14
"""Opened cosines are multiples of one over this."""


@cache
def cosine_ring() -> Similarity:
    """Return the scheme of SIMILARITY; the library is loaded when it is first needed."""
    from crypto.homomorphic.similarity import similarity

    return similarity()


@cache
def weigh_ring() -> WeightedBfv:
    """Return the scheme of WEIGHTED_SUM; the library is loaded when it is first needed."""
    from crypto.homomorphic.weighted import weighted

    return weighted()


def ring_of(disclosure: Disclosure) -> Similarity | WeightedBfv:
    """Return the scheme of a disclosure."""
    return cosine_ring() if disclosure is Disclosure.SIMILARITY else weigh_ring()


# --- keys -----------------------------------------------------------------------------------------

_KEYS: dict[Disclosure, tuple[type[PublicMessage], str]] = {
    Disclosure.SUM: (Key, "public_key"),
    Disclosure.SIMILARITY: (CosineKey, "cosine_key"),
    Disclosure.WEIGHTED_SUM: (WeighKey, "weigh_key"),
}


def keyed(items: Iterable[Item], policy: PrivacyPolicy) -> tuple[Disclosure, ...]:
    """Return for what the key authority makes keys in every epoch of a run with these items."""
    said = _said(items)
    found = [Disclosure.SUM] if encryption(policy.rules.get(Disclosure.SUM, ())) else []
    return tuple(found + [d for d in EVALUATED if d in said and _protected(d, policy)])


def _said(items: Iterable[Item]) -> set[Part]:
    return {item.part for item in items if item.step is Step.UP}


def _protected(disclosure: Disclosure, policy: PrivacyPolicy) -> bool:
    return evaluated(policy.rules.get(disclosure, ())) is not None


def key_kinds(disclosures: Iterable[Disclosure]) -> tuple[type[PublicMessage], ...]:
    """Return the messages that bring these keys, in order."""
    return tuple(_KEYS[disclosure][0] for disclosure in disclosures)


def key_sizes(disclosures: Iterable[Disclosure]) -> dict[str, int]:
    """Return the sizes of these keys by dimension; that of sums stands in every plan."""
    found = set(disclosures)
    sizes = {}
    if Disclosure.SIMILARITY in found:
        sizes["cosine_public_key"] = cosine_ring().public_key_bytes
    if Disclosure.WEIGHTED_SUM in found:
        sizes["weigh_public_key"] = weigh_ring().public_key_bytes
    return sizes


def key_message(disclosure: Disclosure, raw: bytes) -> Message:
    """Return a public key as the message that brings it."""
    kind, name = _KEYS[disclosure]
    return cast(Message, kind(**{name: raw}))


def raw_key(disclosure: Disclosure, message: Message) -> bytes:
    """Return the bytes of the public key that a message brings."""
    return bytes(getattr(message, _KEYS[disclosure][1]))


# --- who witnesses --------------------------------------------------------------------------------


def witness_count(items: Iterable[Item], policy: PrivacyPolicy) -> int:
    """Return how many witnesses take part in a run with these items."""
    said = _said(items)
    guards = [evaluated(policy.rules.get(d, ())) for d in EVALUATED if d in said]
    return max((guard.witnesses for guard in guards if guard is not None), default=0)


def witnesses_of(policy: PrivacyPolicy, disclosure: Disclosure, names: Sequence[str]) -> list[str]:
    """Return who of the roster's witnesses recomputes a disclosure: the first, sorted.

    Raises:
        LocalProtocolError: the roster has fewer than the policy asks for.
    """
    guard = evaluated(policy.chain(disclosure))
    wanted = guard.witnesses if guard is not None else 0
    if len(names) < wanted:
        raise LocalProtocolError("The roster holds fewer witnesses than the policy asks for (O4).")
    return sorted(names)[:wanted]


# --- sizes ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """How one evaluated message stands in ciphertexts.

    Attributes:
        disclosure: what it is.
        ciphertexts: how many one upload takes.
        layout, packing: of the integers that are weighed; None for directions.
        values: entries of the vector that is compared; 0 for what is weighed.
    """

    disclosure: Disclosure
    ciphertexts: int
    layout: SumLayout | None = None
    packing: Packing | None = None
    values: int = 0

    @property
    def upload_bytes(self) -> int:
        """Bytes of one client's ciphertexts."""
        return self.ciphertexts * ring_of(self.disclosure).ciphertext_bytes

    @property
    def result_bytes(self) -> int:
        """Bytes of one masked result: of a pair, or of a receiver."""
        if self.disclosure is Disclosure.SIMILARITY:
            from crypto.homomorphic.similarity import PRODUCT_BYTES

            return PRODUCT_BYTES
        return self.upload_bytes

    @property
    def coefficients(self) -> int:
        """Coefficients of one upload."""
        return self.ciphertexts * weigh_ring().degree

    @property
    def row_bytes(self) -> int:
        """Bytes of the box that holds one opened, blinded row."""
        return self.coefficients * 8 + BOX_OVERHEAD

    def results(self, clients: int) -> int:
        """Return how many results are opened for so many clients: pairs with oneself, or rows."""
        pairs = clients * (clients + 1) // 2
        return pairs if self.disclosure is Disclosure.SIMILARITY else clients


def shape_of(
    kinds: Sequence[type[Message]], policy: PrivacyPolicy, dims: Mapping[str, int]
) -> Shape:
    """Return how the one message type of an evaluated item stands in ciphertexts.

    Raises:
        ValueError: not exactly one message type, or no chain that evaluates it.
    """
    (kind,) = kinds
    chain = policy.chain(kind.disclosure)
    guard, clip, quantise = evaluated(chain), find(chain, "clip"), find(chain, "quantise")
    if guard is None:
        raise ValueError(f"{kind.disclosure} is not computed on ciphertexts under this policy")
    if kind.disclosure is Disclosure.SIMILARITY:
        from crypto.homomorphic.similarity import SKETCH_ABOVE, WIDTH

        (field,) = kind.fields
        values = int(np.prod(field.sizes(dims), dtype=np.int64))
        width = WIDTH if values > SKETCH_ABOVE else values
        return Shape(kind.disclosure, cosine_ring().ciphertexts(width), values=values)
    if not (isinstance(guard, Weigh) and isinstance(clip, Clip) and isinstance(quantise, Quantise)):
        raise ValueError("what is weighed is clipped, quantised and weighed")
    layout, ring = SumLayout((kind,), clip, quantise, dims), weigh_ring()
    packing = Packing(layout.bits, guard.total, ring.plain_bits)
    count = -(-packing.coefficients(layout.length) // ring.degree)
    return Shape(kind.disclosure, max(count, 1), layout, packing)
