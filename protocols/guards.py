"""Guards: the typed steps between a message and the bytes that leave.

Each guard takes a value of one stage and gives a value of a later one, so a chain in a wrong order
does not construct::

    VALUE --clip--> BOUNDED --quantise--> INTEGER (--mask--> MASKED) --he--> CIPHERTEXT
    --seal--> ENVELOPE

A guard is data (what the policy asks for); applying it is the gateway's business.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from protocols.disclosures import Disclosure
from protocols.strict import Strict


class Stage(IntEnum):
    """What a value is between two guards."""

    VALUE = 0
    BOUNDED = 1
    INTEGER = 2
    MASKED = 3
    CIPHERTEXT = 4
    ENVELOPE = 5


class Clip(Strict):
    """Bound the real fields before they are quantised.

    Attributes:
        norm: ``linf`` bounds every coordinate, ``l2`` the joint Euclidean norm of the real fields.
        bound: in the field's unit per unit of its scale (for n_k-weighted updates: the largest
            change of one weight in one round).
    """

    takes: ClassVar[tuple[Stage, ...]] = (Stage.VALUE,)
    gives: ClassVar[Stage] = Stage.BOUNDED
    guard: Literal["clip"] = "clip"
    norm: Literal["linf", "l2"] = "linf"
    bound: float = Field(default=0.5, gt=0, le=1e6)


class Quantise(Strict):
    """Round stochastically onto a symmetric integer grid of `bits` bits that spans the bound."""

    takes: ClassVar[tuple[Stage, ...]] = (Stage.BOUNDED,)
    gives: ClassVar[Stage] = Stage.INTEGER
    guard: Literal["quantise"] = "quantise"
    bits: int = Field(default=16, ge=4, le=32)


class Mask(Strict):
    """Add pairwise masks, uniform mod t per coefficient, inside the ciphertext (O4).

    They cancel only in the sum over the exact cohort. A single upload, a subset, or what a stolen
    key decrypts, is uniform.
    """

    takes: ClassVar[tuple[Stage, ...]] = (Stage.INTEGER,)
    gives: ClassVar[Stage] = Stage.MASKED
    guard: Literal["mask"] = "mask"


class He(Strict):
    """Encrypt the integers with BFV under the key authority's public key; opened blind (O1)."""

    takes: ClassVar[tuple[Stage, ...]] = (Stage.INTEGER, Stage.MASKED)
    gives: ClassVar[Stage] = Stage.CIPHERTEXT
    guard: Literal["he"] = "he"
    scheme: Literal["bfv"] = "bfv"


class Seal(Strict):
    """HPKE to the one recipient, inside a signed envelope."""

    takes: ClassVar[tuple[Stage, ...]] = (Stage.VALUE, Stage.CIPHERTEXT)
    gives: ClassVar[Stage] = Stage.ENVELOPE
    guard: Literal["seal"] = "seal"


class Sign(Strict):
    """Leave in clear, signed: for what is public anyway."""

    takes: ClassVar[tuple[Stage, ...]] = (Stage.VALUE,)
    gives: ClassVar[Stage] = Stage.ENVELOPE
    guard: Literal["sign"] = "sign"


class UnsafeClear(Strict):
    """UNSAFE: leave unprotected. For baselines and controls; flagged in plan, ledger and report."""

    takes: ClassVar[tuple[Stage, ...]] = (Stage.VALUE, Stage.BOUNDED, Stage.INTEGER)
    gives: ClassVar[Stage] = Stage.ENVELOPE
    guard: Literal["unsafe_clear"] = "unsafe_clear"


Guard = Annotated[
    Clip | Quantise | Mask | He | Seal | Sign | UnsafeClear, Field(discriminator="guard")
]

# What must stand in a chain before the receiver is kept to the disclosure. WEIGHTED_SUM,
# SIMILARITY, MATCH, MIXED and NOISED have no protecting guard yet: a policy can name them only
# with the unsafe one.
_UNSAFE_ONLY = frozenset({"unsafe_clear"})
PROTECTING: dict[Disclosure, frozenset[str]] = {
    Disclosure.SUM: frozenset({"he", "unsafe_clear"}),
    Disclosure.WEIGHTED_SUM: _UNSAFE_ONLY,
    Disclosure.SIMILARITY: _UNSAFE_ONLY,
    Disclosure.MATCH: _UNSAFE_ONLY,
    Disclosure.MIXED: _UNSAFE_ONLY,
    Disclosure.NOISED: _UNSAFE_ONLY,
    Disclosure.SEALED: frozenset({"seal"}),
    Disclosure.RELEASED: frozenset({"seal"}),
    Disclosure.PUBLIC: frozenset({"sign"}),
}


def check_chain(disclosure: Disclosure, chain: tuple[Guard, ...]) -> None:
    """Raise ValueError unless `chain` is a complete, ordered protection of `disclosure`."""
    if not chain:
        raise ValueError(f"the chain for {disclosure} is empty; an empty chain protects nothing")
    stage = Stage.VALUE
    for guard in chain:
        if stage not in guard.takes:
            raise ValueError(
                f"{disclosure}: '{guard.guard}' cannot follow a value of stage {stage.name}; the "
                "order is clip, quantise, mask, he, seal"
            )
        stage = guard.gives
    if stage is not Stage.ENVELOPE:
        raise ValueError(f"{disclosure}: the chain must end in 'seal', 'sign' or 'unsafe_clear'")
    present = {guard.guard for guard in chain}
    if not present & PROTECTING[disclosure]:
        raise ValueError(
            f"{disclosure}: nothing in the chain keeps the receiver to '{disclosure.meaning}'; "
            f"needed: one of {', '.join(sorted(PROTECTING[disclosure]))}"
        )
    if disclosure is Disclosure.SUM and "quantise" not in present:
        raise ValueError("SUM: 'clip' and 'quantise' are needed: sums are sums of integers")
    if disclosure is not Disclosure.SUM and len(chain) != 1:
        raise ValueError(
            f"{disclosure}: '{chain[0].guard}' would not be applied to it; "
            f"give exactly one guard, one of {', '.join(sorted(PROTECTING[disclosure]))}"
        )


def find(chain: tuple[Guard, ...], name: str) -> Guard | None:
    """Return the guard called `name`, or None."""
    return next((guard for guard in chain if guard.guard == name), None)


def describe(guard: Guard) -> str:
    """Return a guard and its parameters as plans, ledgers and reports print it."""
    facts = guard.model_dump(exclude={"guard"})
    listed = ", ".join(f"{key}={value}" for key, value in facts.items())
    return f"{guard.guard}({listed})" if listed else guard.guard
