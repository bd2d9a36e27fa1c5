"""The policies that come with the system, as plain facts; `policy.PRESETS` holds them."""

from __future__ import annotations

from typing import Any

from protocols.disclosures.mixed.guards import Mix
from protocols.disclosures.names import Disclosure
from protocols.disclosures.neighbour_sum.guards import MaskNeighbours
from protocols.disclosures.similarity.guards import Cosine, Normalise
from protocols.disclosures.sum.guards import Ckks, He, Mask, Noise
from protocols.disclosures.weighted_sum.guards import Weigh
from protocols.evidence.captures import Capture
from protocols.policy.budget import Budget
from protocols.policy.guard import Guard, find
from protocols.policy.guards import Clip, OwnNoise, Quantise, Relay, Seal, Sign, UnsafeClear

__all__ = ["FACTS"]

_CONTROL: dict[Disclosure, tuple[Guard, ...]] = {
    Disclosure.SEALED: (Seal(),),
    Disclosure.RELEASED: (Seal(),),
    Disclosure.PUBLIC: (Sign(),),
}
_INTEGERS: tuple[Guard, ...] = (Clip(), Quantise())
_HE: tuple[Guard, ...] = (*_INTEGERS, Mask(), He(), Seal())
_NOISED: tuple[Guard, ...] = (
    Clip(norm="l2", bound=1.0),
    Quantise(),
    Noise(epsilon=8.0, delta=1e-5),
    Mask(),
    Seal(),
)
_OWN: tuple[Guard, ...] = (
    Clip(norm="l2", bound=1.0),
    Quantise(),
    OwnNoise(epsilon=8.0, delta=1e-5),
    Mask(),
    Seal(),
)
_OWN_ALONE: tuple[Guard, ...] = (
    Clip(norm="l2", bound=1.0),
    OwnNoise(mechanism="sqkr", epsilon=8.0, delta=1e-5),
    Seal(),
)
_CLEAR: tuple[Guard, ...] = (UnsafeClear(),)


_EVALUATED: dict[Disclosure, tuple[Guard, ...]] = {
    # Models, not their changes: a weight beyond 4 is cut off, and the ledger says so.
    Disclosure.WEIGHTED_SUM: (Clip(bound=4.0), Quantise(bits=15), Weigh(), Seal()),
    Disclosure.SIMILARITY: (Normalise(), Cosine(), Seal()),
}
_MODELS: tuple[Guard, ...] = (Clip(bound=4.0), Quantise(bits=20))
"""Of models that neighbours mix: as many bits as leave a sum in words of 32 for most topologies."""
_NEIGHBOURS: dict[Disclosure, tuple[Guard, ...]] = {
    Disclosure.NEIGHBOUR_SUM: (*_MODELS, MaskNeighbours(), Seal())
}
_MIXED: tuple[Guard, ...] = (Clip(norm="l2", bound=16.0), Mix(), Seal())
_SHUFFLED: tuple[Guard, ...] = (*_MIXED[:2], Relay(), Seal())


def _facts(
    chain: tuple[Guard, ...], *, mixed: tuple[Guard, ...] = _MIXED, **more: Any
) -> dict[str, Any]:
    noised = find(chain, "noise") is not None  # cosines and combinations have no noise (O16)
    rules = {Disclosure.SUM: chain, **({} if noised else _EVALUATED | _NEIGHBOURS), **_CONTROL}
    if mixed:
        rules[Disclosure.MIXED] = mixed
    return {"rules": rules, "capture": Capture(), **more}


FACTS: dict[str, dict[str, Any]] = {
    "pilot": _facts(_HE),
    "he": _facts(_HE),
    # As pilot, and a relay takes the senders off mixtures: one more organisation.
    "shuffled": _facts(_HE, mixed=_SHUFFLED),
    "masks": _facts((*_INTEGERS, Mask(), Seal())),
    # strict: what is computed from many clients together, rows of items included, and no mixture of
    # one client's records.
    "strict": _facts((*_INTEGERS, Mask(), Seal()), mixed=(), capture=None, holders=4),
    "ckks": _facts((*_INTEGERS, Mask(), Ckks(), Seal())),
    "calibrated": _facts(_NOISED, mixed=(), budget=Budget(epsilon=10.0, delta=1e-5)),
    # What one client sends alone is private; masks stand on top, and nothing rests on others.
    "ldp": {
        "rules": {Disclosure.SUM: _OWN, Disclosure.NOISED: _OWN_ALONE, **_CONTROL},
        "budget": Budget(epsilon=10.0, delta=1e-5),
    },
    # Nothing hides in these sums, so three clients run as well as four.
    "unsafe_plaintext": {
        "minimum_cohort": 2,
        "capture": Capture(),
        "rules": {
            Disclosure.SUM: (*_INTEGERS, UnsafeClear()),
            Disclosure.WEIGHTED_SUM: _CLEAR,
            Disclosure.NEIGHBOUR_SUM: (*_MODELS, UnsafeClear()),
            Disclosure.SIMILARITY: _CLEAR,
            Disclosure.MATCH: _CLEAR,
            Disclosure.MIXED: _CLEAR,
            Disclosure.NOISED: _CLEAR,
            **_CONTROL,
        },
    },
}
