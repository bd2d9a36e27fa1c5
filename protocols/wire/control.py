"""The message layer's own messages. They pass the same gateway and stand in plan and ledger."""

from __future__ import annotations

from protocols.disclosures.registry import each
from protocols.messages import (
    Matrix,
    Message,
    PublicMessage,
    ReleasedMessage,
    SealedMessage,
    Vector,
    WeightedSumMessage,
    blob,
    count,
)
from protocols.plan.cohorts import SplitPlan

# Outgoing refusals say one of these and nothing else (O27); the reason stays in the local ledger.
REFUSALS = ("policy", "plan", "cohort", "unfit", "stage", "internal")


class KeyCall(PublicMessage):
    """Aggregator to key authority: make the key of this epoch."""


class Key(PublicMessage):
    """Key authority to everyone: the public key under which sums are encrypted."""

    public_key: bytes = blob("he_public_key", unit="byte", meaning="public key and parameters")


class CosineKey(PublicMessage):
    """Key authority to everyone: the public key under which directions are compared."""

    cosine_key: bytes = blob("cosine_public_key", unit="byte", meaning="public key and parameters")


class WeighKey(PublicMessage):
    """Key authority to everyone: the public key under which messages are weighed."""

    weigh_key: bytes = blob("weigh_public_key", unit="byte", meaning="public key and parameters")


class Call(ReleasedMessage):
    """Aggregator to client, with every Ask: who is in the cohort."""

    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i takes part")
    slot: int = count(unit="sum", meaning="how many sums of this kind came before in this round")
    # Digests of what was given stand in clear headers; without 16 secret bytes the network could
    # confirm guesses about small messages (was the last model the best so far).
    nonce: bytes = blob(16, unit="byte", meaning="random, the same for the whole cohort")
    heads: bytes = blob(32, unit="byte", meaning="root over the heads of all clients' ledgers")


class Place(SealedMessage):
    """Aggregator to client, with every `Call`: the receipt of what this client said last.

    It shows that the client's head and its envelopes stand under `Call.heads` (evidence/heads.py).
    """

    exchange: int = count(unit="exchange", meaning="the last in which the client was heard")
    items: int = count(unit="bit", meaning="bit i: its envelope of the i-th client item is here")
    proof: bytes = blob(
        "heads_proof", unit="byte", meaning="path from the client's line to the root"
    )


class Cluster(ReleasedMessage):
    """Aggregator to client, with every Ask of a form that splits: the cluster that is asked.

    Who of it is away is not among `Call.members`.
    """

    cluster: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i is in it")
    cuts: bytes = blob(
        "cluster_cuts", unit="byte", meaning="the cuts by which it came from all clients, padded"
    )


class Farewell(ReleasedMessage):
    """Aggregator to client, after the last Ask: the heads at the end of the run."""

    nonce: bytes = blob(16, unit="byte", meaning="random, the same for all")
    heads: bytes = blob(32, unit="byte", meaning="root over the heads of all clients' ledgers")


class BudgetHeads(SealedMessage):
    """Client to aggregator, with its leave: how far its privacy budgets have come (O20)."""

    sizes: Vector = count("budgets", unit="line", meaning="lines of the i-th budget's log")
    roots: Vector = blob("budgets", 32, unit="byte", meaning="row i: digest of that log")
    signatures: Vector = blob("budgets", 64, unit="byte", meaning="row i: the client's, over both")


class BudgetNotes(SealedMessage):
    """Aggregator to client: its own heads, signed once more, to be held to later (O20)."""

    sizes: Vector = count("budgets", unit="line", meaning="as the client said")
    roots: Vector = blob("budgets", 32, unit="byte", meaning="as the client said")
    signatures: Vector = blob("budgets", 64, unit="byte", meaning="row i: the aggregator's")


class Acknowledgement(SealedMessage):
    """Client to aggregator, where an Ask wants nothing back: received."""


class Refusal(SealedMessage):
    """Any party to the aggregator: no answer, for one reason of a closed list."""

    code: int = count(unit="code", meaning="index into the closed list of reasons")


class Examine(SealedMessage):
    """Aggregator to witness: what a result was computed from, as the clients signed it (O4)."""

    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i was asked")
    cohort: bytes = blob("roster_mask", unit="bit", meaning="bit i: it takes part in this Ask")
    headers: bytes = blob("upload_headers", unit="byte", meaning="the uploads' signed headers")
    signatures: Vector = blob("cohort", 64, unit="byte", meaning="row i: over the i-th upload")
    uploads: bytes = blob("uploads", unit="byte", meaning="the ciphertexts, one after the other")


class CosineSeed(SealedMessage):
    """Aggregator to witness: from this all masks and zeros of one matrix of cosines follow (O3)."""

    seed: bytes = blob(32, unit="byte", meaning="secret; never shown to the key authority")


class RowSeeds(SealedMessage):
    """Aggregator to witness: the integer weights, and the blind of every receiver's row (O1)."""

    weights: Matrix = count("cohort", "cohort", unit="share", meaning="row i: receiver i's weights")
    seeds: Matrix = blob("cohort", 32, unit="byte", meaning="row i: seed of receiver i's blind")


class Witnessed(SealedMessage):
    """Witness to aggregator: I computed the very same bytes."""

    signature: bytes = blob(64, unit="byte", meaning="Ed25519 over the result and its origin")


class Reveal(SealedMessage):
    """Aggregator to key authority: open these results, which the witnesses signed."""

    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i was asked")
    cohort: bytes = blob("roster_mask", unit="bit", meaning="bit i: it takes part in this Ask")
    headers: bytes = blob("upload_headers", unit="byte", meaning="the uploads' signed headers")
    results: bytes = blob("results", unit="byte", meaning="masked ciphertexts, one after the other")
    rows: Vector = count("cohort", unit="row", meaning="number of the i-th receiver's row")
    signatures: Vector = blob("witnesses", 64, unit="byte", meaning="row i: the i-th witness's")


class Cosines(SealedMessage):
    """Key authority to aggregator: one rounded cosine per pair of uploads, and nothing else."""

    cosines: Vector = count(
        "pairs", unit="2^-14", meaning="1 + cosine, row by row from i to j >= i"
    )


class SignedCut(SealedMessage):
    """Key authority to aggregator, with the cosines of a cluster: how they cut it in two.

    All zero where no cut may happen.
    """

    side: bytes = blob("roster_mask", unit="bit", meaning="bit i: client i is on the smaller side")
    signature: bytes = blob(64, unit="byte", meaning="Ed25519 over the cut and where it belongs")


class RowBoxes(SealedMessage):
    """Key authority to aggregator: opened rows, still blinded, each sealed to its receiver."""

    boxes: bytes = blob("row_boxes", unit="byte", meaning="one HPKE box per receiver")


class Row(WeightedSumMessage):
    """Aggregator to client: its own combination, opened under a blind, and the blind's seed.

    The aggregator cannot open the box, and the authority never saw the seed.
    """

    box: bytes = blob("row_box", unit="byte", meaning="HPKE box of the key authority")
    seed: bytes = blob(32, unit="byte", meaning="of the blind")


class Boxes(SealedMessage):
    """Aggregator to client: what the other clients sealed for this one, row i from client i."""

    boxes: bytes = blob("boxes", unit="byte", meaning="one HPKE box per roster client")


class PairCall(PublicMessage):
    """Aggregator to client, once an epoch: agree on secrets with these clients."""

    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i is called")


class PairBoxes(SealedMessage):
    """Client to aggregator: one box per neighbour, which only that neighbour opens.

    A box holds half of the pair's secret and the neighbour's share of this client's seeds.
    """

    boxes: bytes = blob("pair_boxes", unit="byte", meaning="one HPKE box per neighbour, padded")


class PairDown(SealedMessage):
    """Aggregator to client: the boxes that its neighbours sealed for it, and whose are there."""

    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: the box of client i is there")
    boxes: bytes = blob("pair_boxes", unit="byte", meaning="one HPKE box per neighbour, padded")


class PairRows(SealedMessage):
    """Client to aggregator: its pairs' secrets of every slot, locked under a seed it shared.

    The aggregator opens a row only when enough holders of that seed say the client has vanished.
    """

    rows: bytes = blob("pair_rows", unit="byte", meaning="one locked row per slot")


class DrawCall(PublicMessage):
    """Aggregator to client, once in a run: lots are drawn, and this is what I am bound to."""

    commitment: bytes = blob(32, unit="byte", meaning="digest of the aggregator's random bytes")


class DrawCommit(SealedMessage):
    """Client to aggregator: what I am bound to, signed so that all others can see it is mine."""

    commitment: bytes = blob(32, unit="byte", meaning="digest of this client's random bytes")
    signature: bytes = blob(64, unit="byte", meaning="Ed25519 over run, plan, name and digest")


class DrawCommits(PublicMessage):
    """Aggregator to client: what everybody is bound to. Who is not in it draws no lot."""

    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i draws lots")
    commitments: Vector = blob("cohort", 32, unit="byte", meaning="row i: of roster client i")
    signatures: Vector = blob("cohort", 64, unit="byte", meaning="row i: of roster client i")


class DrawLot(SealedMessage):
    """Client to aggregator: my random bytes, for this table of digests and for no other."""

    secret: bytes = blob(32, unit="byte", meaning="random, no data")
    signature: bytes = blob(64, unit="byte", meaning="Ed25519 over the table of all digests")


class DrawLots(PublicMessage):
    """Aggregator to client: everybody's random bytes. The run's cohorts follow from them."""

    own: bytes = blob(32, unit="byte", meaning="the aggregator's random bytes")
    secrets: Vector = blob("cohort", 32, unit="byte", meaning="row i: of roster client i")
    signatures: Vector = blob("cohort", 64, unit="byte", meaning="row i: of roster client i")


CONTROL = (
    KeyCall,
    Key,
    CosineKey,
    WeighKey,
    Call,
    Place,
    Cluster,
    Farewell,
    BudgetHeads,
    BudgetNotes,
    Acknowledgement,
    Refusal,
    Examine,
    CosineSeed,
    RowSeeds,
    Witnessed,
    Reveal,
    Cosines,
    SignedCut,
    RowBoxes,
    Row,
    Boxes,
    PairCall,
    PairBoxes,
    PairDown,
    PairRows,
    DrawCall,
    DrawCommit,
    DrawCommits,
    DrawLot,
    DrawLots,
    *(kind for kinds in each("messages") for kind in kinds),
)
"""Every message of the layer itself; no policy has to name them."""


def beside(splits: SplitPlan | None) -> tuple[type[Message], ...]:
    """Return what every Ask hands out beside `Call` and `Place`."""
    return (Cluster,) if splits is not None else ()
