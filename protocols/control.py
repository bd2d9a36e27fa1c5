"""The message layer's own messages. They pass the same gateway and stand in plan and ledger."""

from __future__ import annotations

from protocols.messages import PublicMessage, ReleasedMessage, SealedMessage, Vector, blob, count

# Outgoing refusals say one of these and nothing else (O27); the reason stays in the local ledger.
REFUSALS = ("policy", "plan", "cohort", "unfit", "stage", "internal")


class KeyCall(PublicMessage):
    """Aggregator to key authority: make the key for this run."""


class Key(PublicMessage):
    """Key authority to everyone: the public key under which sums are encrypted."""

    public_key: bytes = blob("he_public_key", unit="byte", meaning="BFV public key and parameters")


class Call(ReleasedMessage):
    """Aggregator to client, with every Ask: who is in the cohort."""

    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i takes part")
    # Digests of what was given stand in clear headers; without 16 secret bytes the network could
    # confirm guesses about small messages (was the last model the best so far).
    nonce: bytes = blob(16, unit="byte", meaning="random, the same for the whole cohort")


class Acknowledgement(SealedMessage):
    """Client to aggregator, where an Ask wants nothing back: received."""


class Refusal(SealedMessage):
    """Any party to the aggregator: no answer, for one reason of a closed list."""

    code: int = count(unit="code", meaning="index into the closed list of reasons")


class OpenRequest(SealedMessage):
    """Aggregator to key authority: open this blinded total."""

    total: bytes = blob("he_total", unit="byte", meaning="BFV total, blinded uniformly mod t")
    headers: bytes = blob("he_headers", unit="byte", meaning="the signed headers of all uploads")


class Opened(SealedMessage):
    """Key authority to aggregator: the decrypted, still blinded coefficients."""

    total: bytes = blob("he_opened", unit="byte", meaning="coefficients mod t, uniform noise")


class Boxes(SealedMessage):
    """Aggregator to client: what the other clients sealed for this one, row i from client i."""

    boxes: bytes = blob("boxes", unit="byte", meaning="one HPKE box per roster client")


class PairSecret(SealedMessage):
    """Client to every other client, before round 1: half of a pair's secret, row j for client j."""

    secret: Vector = blob("cohort", 32, unit="byte", meaning="random; half of a pair's secret")


CONTROL = (KeyCall, Key, Call, Acknowledgement, Refusal, OpenRequest, Opened, Boxes)

OWN = (*CONTROL, PairSecret)
"""Every message of the layer itself; no policy has to name them."""
