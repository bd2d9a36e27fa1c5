"""The client's own noise on one message: its parts in the plan, and the randomiser of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crypto.errors import CryptoError
from crypto.ldp import DrawnCategory, FiniteRandomiser, Piecewise, Randomiser, Several
from crypto.ldp_vectors import LEVELS, GaussianVector, LaplaceVector, Sqkr, scale_within
from crypto.samplers import Stream
from protocols.errors import BadEnvelope, LocalProtocolError, NotAdmitted, PolicyError, UnfitMessage
from protocols.messages import Message
from protocols.plan.plan import Item, NoisePlan
from protocols.policy.admission import check_own_noise
from protocols.policy.guard import Guard, guard_of
from protocols.policy.guards import Clip, OwnNoise
from protocols.privacy import accounting
from protocols.privacy.own_noise import check_useful
from protocols.privacy.pure import calibrate_pure

# Which mechanism tells a message: one for a vector, or one for each field that is told by itself.
#
# A `category` is one place drawn by weights, told by randomised response or unary encoding, and a
# `bounded` number by the piecewise mechanism. All fields of a message share its epsilon equally.
# The guard's `mechanism` is that of vectors alone.

Parts = tuple[tuple[str, int], ...]
"""Per piece of a message's numbers, in the order of its fields: how it is told, and how many."""


def parts_of(kinds: Sequence[type[Message]], dims: Mapping[str, int]) -> Parts:
    """Return the pieces of messages; one, told as a vector, where no field is told by itself."""
    return _pieces((f.told, prod(f.sizes(dims))) for kind in kinds for f in kind.fields)


def planned_parts(item: Item) -> Parts:
    """Return the pieces of an item's messages, as its plan says them."""
    return _pieces((f.told, prod(f.shape)) for m in item.messages for f in m.fields)


def _pieces(fields: Iterable[tuple[str, int]]) -> Parts:
    found = tuple(fields)
    return found if tells(found) else (("", entries_of(found)),)


def tells(parts: Parts) -> bool:
    """Tell whether any piece is told by itself."""
    return any(told for told, _ in parts)


def entries_of(parts: Parts | int) -> int:
    """Return how many numbers the pieces have together, or a vector has."""
    return parts if isinstance(parts, int) else sum(size for _, size in parts)


def teller(told: str, size: int, epsilon: Fraction) -> FiniteRandomiser:
    """Return the mechanism of one piece; raises CryptoError for what cannot be told."""
    if told == "category":
        return DrawnCategory(size, epsilon)
    if told == "bounded" and size == 1:
        return Piecewise(0.5, epsilon, centre=0.5)
    raise CryptoError(f"A field is told as {told!r}, which no mechanism does.")


@lru_cache(maxsize=64)
def randomiser_of(noise: NoisePlan, parts: Parts | int, bound: float, label: str) -> Randomiser:
    """Return the randomiser of one item's messages.

    Args:
        noise: as planned.
        parts: pieces of a message, or the entries of a vector, at most as many as planned for.
        bound: of `clip`.
        label: of the item; with it goes the public rotation.

    Raises:
        PolicyError: it cannot be drawn.
    """
    pieces = (("", parts),) if isinstance(parts, int) else parts
    try:
        if tells(pieces):
            share = Fraction(noise.pure or "0") / len(pieces)
            return Several([(size, teller(told, size, share)) for told, size in pieces])
        length = entries_of(pieces)
        if noise.mechanism == "gaussian_vector":
            return GaussianVector(length, bound, float(noise.sigma), int(float(noise.l2)))
        if noise.mechanism == "laplace_vector":
            return LaplaceVector.within(length, bound, float(noise.pure), int(float(noise.l2)))
        seed = hashlib.sha256(b"secure-fgl/rotation\0" + label.encode()).digest()
        return Sqkr(length, bound, float(noise.pure), seed)
    except CryptoError as error:
        raise PolicyError(
            "No noise of one client's own can be drawn for this target.",
            why=str(error),
            fix="plan fewer rounds, a larger epsilon, or another mechanism of own_noise",
        ) from error


# One client's message under its own noise: with how much, and its bytes.
#
# All real numbers of a message are one vector, clipped as one, unless its fields are told by
# themselves (`telling`). Which mechanism tells it follows from the policy's target and the plan
# alone, so every client computes it again before it sends anything.

Chain = Sequence[Guard]
Kinds = Sequence[type[Message]]
_NAMES = {
    "discrete_gaussian": "gaussian_vector",
    "discrete_laplace": "laplace_vector",
    "sqkr": "sqkr",
}


@lru_cache(maxsize=32)
def _planned(guard: OwnNoise, coordinates: int, releases: int, clients: int) -> NoisePlan:
    """Return the noise of every NOISED message of a run; the longest vector decides for all."""
    facts: dict[str, Any] = {
        "mechanism": _NAMES[guard.mechanism],
        "sigma": "",
        "l2": repr(float(LEVELS)),
        "l1": repr(accounting.rounded_l1(float(LEVELS), coordinates)),
        "coordinates": coordinates,
        "honest": 1,
        "margin": 0,
        "releases": releases,
        "epsilon": repr(guard.epsilon),
        "delta": repr(guard.delta),
        "adjacency": "replace-one",
    }
    if guard.mechanism != "discrete_gaussian":
        facts |= {"pure": calibrate_pure(guard.epsilon, guard.delta, releases)}
        if guard.mechanism == "discrete_laplace":
            facts |= {"sigma": repr(scale_within(float(facts["pure"]), LEVELS))}
        return NoisePlan.model_validate(facts)
    sigma = accounting.calibrate(
        epsilon=guard.epsilon,
        delta=guard.delta,
        releases=releases,
        l2=2.0 * float(facts["l2"]),
        l1=2.0 * float(facts["l1"]),
        dimension=coordinates,
        honest=1,
        tails=accounting.tails(honest=clients, dimension=coordinates, releases=releases),
    )
    return NoisePlan.model_validate({**facts, "sigma": repr(sigma)})


def plan_own(
    chain: Chain, found: Sequence[tuple[Parts | int, int]], clients: int, smallest: int
) -> NoisePlan | None:
    """Return the noise of NOISED messages; None where a chain adds none of its own.

    Args:
        chain: of NOISED.
        found: per Ask its pieces, or the entries of its vector, and how often one client sends it.
        clients: on the plan.
        smallest: cohort of the policy.

    Raises:
        NotAdmitted: the plan has too many clients for delta, or a mean would say nothing.
        PolicyError: no noise that can be drawn reaches the target.
    """
    guard, clip = guard_of(chain, OwnNoise), guard_of(chain, Clip)
    if guard is None or clip is None or not found:
        return None
    try:
        check_own_noise(guard, clients)
    except ValueError as error:
        raise NotAdmitted(
            f"A policy's own_noise cannot be played by {clients} clients.",
            why=str(error),
            fix=f"set delta of own_noise to {0.1 / clients:.1g} or less",
        ) from error
    asked = [((("", one),) if isinstance(one, int) else one) for one, _ in found]
    longest, releases = max(map(entries_of, asked)), sum(times for _, times in found)
    noise = _planned(guard, longest, releases, clients)
    for parts in asked:
        spread = randomiser_of(noise, parts, clip.bound, "").variance(smallest) ** 0.5
        bound = len(parts) ** 0.5 if tells(parts) else clip.bound
        check_useful(spread, bound, smallest, accepted=guard.accept_noise)
    return noise


def randomised(
    messages: Sequence[Message], dims: Mapping[str, int], item: Item, chain: Chain, draws: Stream
) -> bytes:
    """Return the bytes that a client's own draws make of its messages: clip, noise, packing.

    Args:
        messages: of one Ask.
        dims: of the plan.
        item: with the planned noise.
        chain: the policy's, with the clip.
        draws: a gateway's come from the operating system, and serve one message (O15).

    Raises:
        LocalProtocolError: no noise is planned, or nothing is clipped.
    """
    clip, noise = guard_of(chain, Clip), item.noise
    if clip is None or noise is None:
        raise LocalProtocolError("A message would leave without the noise of its policy.")
    vector = vector_of(messages, dims)
    parts = parts_of([type(message) for message in messages], dims)
    randomiser = randomiser_of(noise, parts, clip.bound, item.label)
    return randomiser.pack(randomiser.encode(vector, draws))


def vector_of(messages: Sequence[Message], dims: Mapping[str, int]) -> NDArray[np.float64]:
    """Return all real numbers of messages as one vector.

    Raises:
        UnfitMessage: a field is not of its planned shape; a client looks for that before.
    """
    parts = []
    for message in messages:
        for field in type(message).fields:
            value = np.asarray(getattr(message, field.name), dtype=np.float64)
            if value.shape != field.sizes(dims):
                raise UnfitMessage(
                    f"{type(message).__name__}.{field.name} does not have its planned shape."
                )
            parts.append(value.ravel())
    return np.concatenate(parts)


def messages_of(
    kinds: Kinds, body: bytes, dims: Mapping[str, int], randomiser: Randomiser
) -> tuple[Message, ...]:
    """Return what one client's randomised body estimates, as messages.

    Raises:
        BadEnvelope: these bytes are none of the randomiser's messages.
    """
    try:
        vector, start = randomiser.decode(randomiser.unpack(body)), 0
    except CryptoError as error:
        raise BadEnvelope("A randomised message cannot be read.") from error
    found: list[Message] = []
    for kind in kinds:
        values: dict[str, Any] = {}
        for field in kind.fields:
            shape = field.sizes(dims)
            size = int(np.prod(shape, dtype=np.int64))
            part = vector[start : start + size].astype(f"<{field.wire}").reshape(shape)
            values[field.name], start = part if shape else float(part), start + size
        found.append(kind(**values))
    return tuple(found)
