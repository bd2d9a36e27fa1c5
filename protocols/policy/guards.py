"""Guards: the typed steps between a message and the bytes that leave.

Each guard takes a value of one stage and gives a value of a later one, so a chain in a wrong order
does not construct::

    VALUE --clip--> BOUNDED --quantise--> INTEGER (--noise or own_noise--> NOISED)
    (--mask--> MASKED) (--he or ckks--> CIPHERTEXT) --seal--> ENVELOPE

for messages that one client's own noise hides, each read by itself::

    VALUE --clip--> BOUNDED --own_noise--> NOISED (--relay--> BOXED) --seal--> ENVELOPE

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

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union

from pydantic import Field, model_validator

from protocols.disclosures.registry import guards
from protocols.policy.guard import Guard, ValueStage


class Clip(Guard):
    """Bound real fields before they are quantised.

    Attributes:
        norm: ``linf`` bounds every coordinate, ``l2`` and ``l1`` the joint norm of the real fields;
            of a MIXED message, that of each record's features.
        bound: in the field's unit per unit of its scale (for n_k-weighted updates: the largest
            change of one weight in one round).
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.VALUE,)
    gives: ClassVar[ValueStage] = ValueStage.BOUNDED
    guard: Literal["clip"] = "clip"
    norm: Literal["linf", "l2", "l1"] = "linf"
    bound: float = Field(default=0.5, gt=0, le=1e6)

    @model_validator(mode="before")
    @classmethod
    def _nearest(cls, given: Any) -> Any:
        """Say what would be lawful in the place of what bounds nothing."""
        bound = given.get("bound") if isinstance(given, dict) else None
        if isinstance(bound, int | float) and not 0 < bound <= 1e6:
            raise ValueError(
                f"clip: a bound of {bound:g} bounds nothing; take a number above 0, at most 1e6, "
                "such as 1.0"
            )
        return given


class Quantise(Guard):
    """Round at random to a grid of `bits` bits within the bound, unbiased."""

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.BOUNDED,)
    gives: ClassVar[ValueStage] = ValueStage.INTEGER
    guard: Literal["quantise"] = "quantise"
    bits: int = Field(default=16, ge=4, le=32, description="of the integer that a value becomes")


class OwnNoise(Guard):
    """Add noise of one's own, enough for (epsilon, delta) over the whole run, whoever colludes.

    The unit is one client, the model local: for any two data sets of the client, all that it sends
    under this guard in the run is within (epsilon, delta), by its own draws alone. The plan states
    each message's share.

    Attributes:
        mechanism: ``discrete_gaussian`` and ``discrete_laplace`` on every entry; ``sqkr`` (of
            NOISED only) tells a few bits of a rotated vector, for many entries. It is that of
            vectors: a category or a bounded number is told as its field says.
        unit: whose data it hides.
        epsilon, delta: for the run; delta below 1/clients.
        accept_noise: plan even where the mean of the smallest cohort is expected to err by more
            than the clip, so that nothing can be learnt of one message.
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (ValueStage.BOUNDED, ValueStage.INTEGER)
    gives: ClassVar[ValueStage] = ValueStage.NOISED
    guard: Literal["own_noise"] = "own_noise"
    mechanism: Literal["discrete_gaussian", "discrete_laplace", "sqkr"] = "discrete_gaussian"
    unit: Literal["client"] = "client"
    epsilon: float = Field(gt=0, le=1e6)
    delta: float = Field(gt=0, lt=0.1)
    accept_noise: bool = False

    @model_validator(mode="before")
    @classmethod
    def _nearest(cls, given: Any) -> Any:
        """Say what would be lawful in the place of what is not."""
        if not isinstance(given, dict):
            return given
        if given.get("unit", "client") != "client":
            raise ValueError(
                "own_noise hides a client; single records are hidden by the policy's 'training', "
                "and counts of them by the guard 'record_noise'"
            )
        epsilon, delta = given.get("epsilon"), given.get("delta")
        if isinstance(epsilon, int | float) and not 0 < epsilon <= 1e6:
            raise ValueError(f"epsilon {epsilon:g} hides nothing or all; take 0.1 to 16")
        if isinstance(delta, int | float) and not 0 < delta < 0.1:
            raise ValueError(f"delta {delta:g} is no small probability; take 1e-5")
        if isinstance(delta, int | float) and delta < 1e-10:
            raise ValueError(f"delta {delta:g} cannot pay for the samplers' tails; take 1e-9")
        return given


class Relay(Guard):
    """Seal to the aggregator in boxes, and all of them to a RELAY that takes the senders off (O23).

    The relay opens none of them, and returns those of a whole cohort in one random order. What
    mixtures hold may tell the sender all the same, and nothing is credited for their order. Of
    messages under the client's own noise, by a mechanism with an epsilon at delta 0, the plan says
    what the order is worth, if anything; it is never charged in the place of the client's own.
    """

    takes: ClassVar[tuple[ValueStage, ...]] = (
        ValueStage.MIXED,
        ValueStage.BLURRED,
        ValueStage.NOISED,
    )
    gives: ClassVar[ValueStage] = ValueStage.BOXED
    guard: Literal["relay"] = "relay"


class Seal(Guard):
    """Seal to the recipient, or to the relay, in a signed envelope (HPKE)."""

    takes: ClassVar[tuple[ValueStage, ...]] = (
        ValueStage.VALUE,
        ValueStage.NOISED,
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


COMMON: tuple[type[Guard], ...] = (Clip, Quantise, OwnNoise, Relay, Seal, Sign, UnsafeClear)
"""Guards that several disclosures use; the others lie in a disclosure's folder."""

if TYPE_CHECKING:
    AnyGuard = Guard
else:
    AnyGuard = Annotated[Union[(*COMMON, *guards())], Field(discriminator="guard")]
