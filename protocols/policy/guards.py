"""Guards: the typed steps between a message and the bytes that leave.

Each guard takes a value of one stage and gives a value of a later one, so a chain in a wrong order
does not construct::

    VALUE --clip--> BOUNDED --quantise--> INTEGER (--noise--> NOISED) (--mask--> MASKED)
    (--he or ckks--> CIPHERTEXT) --seal--> ENVELOPE

and for what is computed on ciphertexts, witnessed and opened::

    VALUE --normalise--> UNIT --cosine--> CIPHERTEXT --seal--> ENVELOPE
    VALUE --clip--> BOUNDED --quantise--> INTEGER --weigh--> CIPHERTEXT --seal--> ENVELOPE

and for what is mixed::

    VALUE --clip--> BOUNDED --mix--> MIXED (--blur--> BLURRED) (--relay--> BOXED) --seal--> ENVELOPE

for what is matched::

    VALUE --clip--> BOUNDED --quantise--> INTEGER --match--> MATCHED --seal--> ENVELOPE

and, as published and never by a preset, for vectors that strangers read one by one::

    VALUE --clip--> BOUNDED --laplace--> NOISED --match--> MATCHED --unsafe_clear--> ENVELOPE

for tags that everybody opens, with 'quantise' in place of 'laplace',

as well as and never by a preset, for rows that one client shows::

    VALUE --clip--> BOUNDED (--decoys--> BOUNDED) (--laplace--> NOISED) --unsafe_clear--> ENVELOPE

A guard is data (what the policy asks for); applying it is the gateway's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Union

from pydantic import Field

from protocols.disclosures.registry import guards
from protocols.policy.guard import Guard, ValueStage


class Clip(Guard):
    """Bound the real fields before they are quantised.

    Attributes:
        norm: ``linf`` bounds every coordinate, ``l2`` the joint Euclidean norm of the real fields;
            of a MIXED message, that of each record's features.
        bound: in the field's unit per unit of its scale (for n_k-weighted updates: the largest
            change of one weight in one round).
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.VALUE,)
    gives: ClassVar[ValueStage] = ValueStage.BOUNDED
    guard: Literal["clip"] = "clip"
    norm: Literal["linf", "l2"] = "linf"
    bound: float = Field(default=0.5, gt=0, le=1e6)


class Quantise(Guard):
    """Round stochastically onto a symmetric integer grid of `bits` bits that spans the bound."""

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.BOUNDED,)
    gives: ClassVar[ValueStage] = ValueStage.INTEGER
    guard: Literal["quantise"] = "quantise"
    bits: int = Field(default=16, ge=4, le=32)


class Seal(Guard):
    """HPKE to the one recipient (after 'relay': to the relay), inside a signed envelope."""

    takes: ClassVar[tuple[ValueStage, ...]] = (
        ValueStage.VALUE,
        ValueStage.MASKED,
        ValueStage.CIPHERTEXT,
        ValueStage.MIXED,
        ValueStage.BLURRED,
        ValueStage.BOXED,
        ValueStage.MATCHED,
    )
    gives: ClassVar[ValueStage] = ValueStage.ENVELOPE
    guard: Literal["seal"] = "seal"


class Sign(Guard):
    """Leave in clear, signed: for what is public anyway."""

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.VALUE,)
    gives: ClassVar[ValueStage] = ValueStage.ENVELOPE
    guard: Literal["sign"] = "sign"


class UnsafeClear(Guard):
    """UNSAFE: leave unprotected. For baselines and controls; flagged in plan, ledger and report.

    After 'match' the boxes stay locked, and what others get out of them is unprotected.
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (
        ValueStage.VALUE,
        ValueStage.BOUNDED,
        ValueStage.INTEGER,
        ValueStage.NOISED,
        ValueStage.MATCHED,
    )
    gives: ClassVar[ValueStage] = ValueStage.ENVELOPE
    guard: Literal["unsafe_clear"] = "unsafe_clear"


COMMON: tuple[type[Guard], ...] = (Clip, Quantise, Seal, Sign, UnsafeClear)
"""Guards that several disclosures use; the others lie in a disclosure's folder."""

if TYPE_CHECKING:
    AnyGuard = Guard
else:
    AnyGuard = Annotated[Union[(*COMMON, *guards())], Field(discriminator="guard")]
