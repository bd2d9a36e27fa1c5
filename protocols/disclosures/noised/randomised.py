"""One client's message under its own noise: with how much, and its bytes.

All real numbers of a message are one vector, clipped as one, unless its fields are told by
themselves (`telling`). Which mechanism tells it follows from the policy's target and the plan
alone, so every client computes it again before it sends anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crypto.errors import CryptoError
from crypto.ldp.laplace import scale_within
from crypto.ldp.mechanism import Randomiser
from crypto.ldp.noise import LEVELS
from crypto.samplers import Stream
from protocols.disclosures.noised.telling import Parts, entries_of, parts_of, randomiser_of, tells
from protocols.errors import BadEnvelope, LocalProtocolError, NotAdmitted, UnfitMessage
from protocols.messages import Message
from protocols.plan.noise import NoisePlan
from protocols.plan.plan import Item
from protocols.policy.guard import Guard, guard_of
from protocols.policy.guards import Clip, OwnNoise
from protocols.policy.own_noise import check_own_noise
from protocols.privacy import accounting
from protocols.privacy.own_noise import check_useful
from protocols.privacy.pure import calibrate_pure

__all__ = ["messages_of", "plan_own", "randomised", "vector_of"]

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
