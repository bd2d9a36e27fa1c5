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

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from protocols.disclosures.match.guards import Match
from protocols.disclosures.mixed.guards import Blur, Mix, Relay
from protocols.disclosures.noised.guards import Decoys, Laplace
from protocols.policy.stages import Stage
from protocols.strict import Strict


class Clip(Strict):
    """Bound the real fields before they are quantised.

    Attributes:
        norm: ``linf`` bounds every coordinate, ``l2`` the joint Euclidean norm of the real fields;
            of a MIXED message, that of each record's features.
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


class Noise(Strict):
    """Add discrete noise on the integer grid, enough for (epsilon, delta) over the whole run (O14).

    The unit is one client: epsilon bounds what all noised sums of the run together tell about
    whether this client's data took part. Each client adds its share of the noise; the plan says how
    much, and how many honest clients are counted on (O18). Sums with exact counts are refused.
    """

    takes: ClassVar[tuple[Stage, ...]] = (Stage.INTEGER,)
    gives: ClassVar[Stage] = Stage.NOISED
    guard: Literal["noise"] = "noise"
    mechanism: Literal["discrete_gaussian", "discrete_laplace"] = "discrete_gaussian"
    epsilon: float = Field(gt=0, le=1e6)
    delta: float = Field(gt=0, lt=0.1)


class Mask(Strict):
    """Add pairwise and self-masks, uniform mod t per coefficient; drop-outs are recovered (O4-O7).

    They come off only in the sum over the exact survivors of the exact cohort. A single upload, a
    subset, or what a stolen key decrypts, is uniform.

    Attributes:
        corrupt, dropped: shares of clients assumed to collude and to vanish. They choose how many
            neighbours a client has where the graph of pairs is not complete (100 clients and more).
    """

    takes: ClassVar[tuple[Stage, ...]] = (Stage.INTEGER, Stage.NOISED)
    gives: ClassVar[Stage] = Stage.MASKED
    guard: Literal["mask"] = "mask"
    corrupt: float = Field(default=0.1, ge=0, lt=0.5)
    dropped: float = Field(default=0.05, ge=0, lt=0.5)


class He(Strict):
    """Encrypt the integers with BFV under the key authority's public key; opened blind (O1).

    Attributes:
        scheme: ``bfv`` (192-bit security, 44 bits of plaintext per coefficient) or ``bfv48``
            (128-bit security, 48 bits: three 12-bit values of ten clients).
    """

    takes: ClassVar[tuple[Stage, ...]] = (Stage.INTEGER, Stage.NOISED, Stage.MASKED)
    gives: ClassVar[Stage] = Stage.CIPHERTEXT
    guard: Literal["he"] = "he"
    scheme: Literal["bfv", "bfv48"] = "bfv"


class Ckks(Strict):
    """Encrypt the same integers with CKKS; the authority rounds to the grid (O2).

    CKKS adds over the integers, so only what is masked may stand inside.
    """

    takes: ClassVar[tuple[Stage, ...]] = (Stage.MASKED,)
    gives: ClassVar[Stage] = Stage.CIPHERTEXT
    guard: Literal["ckks"] = "ckks"


class Normalise(Strict):
    """Bring a vector to length 1: its direction is compared, and its length stays here."""

    takes: ClassVar[tuple[Stage, ...]] = (Stage.VALUE,)
    gives: ClassVar[Stage] = Stage.UNIT
    guard: Literal["normalise"] = "normalise"


class Cosine(Strict):
    """Encrypt a unit vector with CKKS; pairs are multiplied encrypted, and one number is read (O3).

    Attributes:
        scheme: of `crypto.similarity`.
        opener: who holds the secret key, reads one number a pair and returns it rounded.
        witnesses: how many parties recompute the products before anything is opened (O4). With 0
            an active aggregator can have a single upload opened; the plan says so.
    """

    takes: ClassVar[tuple[Stage, ...]] = (Stage.UNIT,)
    gives: ClassVar[Stage] = Stage.CIPHERTEXT
    guard: Literal["cosine"] = "cosine"
    scheme: Literal["ckks-cosine"] = "ckks-cosine"
    opener: Literal["key_authority"] = "key_authority"
    witnesses: int = Field(default=1, ge=0, le=9, strict=True)


class Weigh(Strict):
    """Encrypt the integers with BFV; each receiver gets one combination, opened blind (O1, O10).

    Attributes:
        scheme: of `crypto.weighted`.
        opener: who holds the secret key, and opens every combination under a blind.
        witnesses: as in :class:`Cosine`.
        total: what the integer weights of every receiver add up to.
        top: how many others at most enter one combination of an honest aggregator, the heaviest of
            those that the algorithm weighs; None: all of them. Ties stay whole: what weighs as much
            as the last one enters too, so rows whose others weigh alike (FED-PUB's first round) are
            not cut. Witnesses check the smallest group (O10), not this.
    """

    takes: ClassVar[tuple[Stage, ...]] = (Stage.INTEGER,)
    gives: ClassVar[Stage] = Stage.CIPHERTEXT
    guard: Literal["weigh"] = "weigh"
    scheme: Literal["bfv-weighted"] = "bfv-weighted"
    opener: Literal["key_authority"] = "key_authority"
    witnesses: int = Field(default=1, ge=0, le=9, strict=True)
    total: Literal[64, 128] = 128
    top: int | None = Field(default=None, ge=4, le=1024, strict=True)


class Seal(Strict):
    """HPKE to the one recipient (after 'relay': to the relay), inside a signed envelope."""

    takes: ClassVar[tuple[Stage, ...]] = (
        Stage.VALUE,
        Stage.MASKED,
        Stage.CIPHERTEXT,
        Stage.MIXED,
        Stage.BLURRED,
        Stage.BOXED,
        Stage.MATCHED,
    )
    gives: ClassVar[Stage] = Stage.ENVELOPE
    guard: Literal["seal"] = "seal"


class Sign(Strict):
    """Leave in clear, signed: for what is public anyway."""

    takes: ClassVar[tuple[Stage, ...]] = (Stage.VALUE,)
    gives: ClassVar[Stage] = Stage.ENVELOPE
    guard: Literal["sign"] = "sign"


class UnsafeClear(Strict):
    """UNSAFE: leave unprotected. For baselines and controls; flagged in plan, ledger and report.

    After 'match' the boxes stay locked, and what others get out of them is unprotected.
    """

    takes: ClassVar[tuple[Stage, ...]] = (
        Stage.VALUE,
        Stage.BOUNDED,
        Stage.INTEGER,
        Stage.NOISED,
        Stage.MATCHED,
    )
    gives: ClassVar[Stage] = Stage.ENVELOPE
    guard: Literal["unsafe_clear"] = "unsafe_clear"


Guard = Annotated[
    Clip
    | Quantise
    | Noise
    | Mask
    | He
    | Ckks
    | Normalise
    | Cosine
    | Weigh
    | Mix
    | Blur
    | Relay
    | Match
    | Decoys
    | Laplace
    | Seal
    | Sign
    | UnsafeClear,
    Field(discriminator="guard"),
]

SCHEMES = {"bfv": "bfv-sealapi", "bfv48": "bfv48-sealapi", "ckks": "ckks-sealapi"}
"""What `crypto.he.scheme` calls each of them."""


def encryption(chain: tuple[Guard, ...]) -> str | None:
    """Return which encryption a chain asks for: ``bfv``, ``bfv48``, ``ckks``, or None."""
    found = find(chain, "he") or find(chain, "ckks")
    return found.scheme if isinstance(found, He) else "ckks" if found else None


def evaluated(chain: tuple[Guard, ...]) -> Cosine | Weigh | None:
    """Return the guard under which results are computed on ciphertexts, witnessed and opened."""
    found = find(chain, "cosine") or find(chain, "weigh")
    return found if isinstance(found, Cosine | Weigh) else None


def find(chain: tuple[Guard, ...], name: str) -> Guard | None:
    """Return the guard called `name`, or None."""
    for guard in chain:
        if guard.guard == name:
            return guard
    return None


def describe(guard: Guard) -> str:
    """Return a guard and its parameters as plans, ledgers and reports print it."""
    facts = guard.model_dump(exclude={"guard"})
    listed = ", ".join(f"{key}={value}" for key, value in facts.items())
    return f"{guard.guard}({listed})" if listed else guard.guard
