"""The message layer's own messages. They pass the same gateway and stand in plan and ledger."""

from __future__ import annotations

from protocols.disclosures.registry import each
from protocols.messages import (
    Matrix,
    PublicMessage,
    ReleasedMessage,
    SealedMessage,
    Vector,
    WeightedSumMessage,
    blob,
    count,
)

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


class Farewell(ReleasedMessage):
    """Aggregator to client, after the last Ask: the heads at the end of the run."""

    nonce: bytes = blob(16, unit="byte", meaning="random, the same for all")
    heads: bytes = blob(32, unit="byte", meaning="root over the heads of all clients' ledgers")


class Acknowledgement(SealedMessage):
    """Client to aggregator, where an Ask wants nothing back: received."""


class Refusal(SealedMessage):
    """Any party to the aggregator: no answer, for one reason of a closed list."""

    code: int = count(unit="code", meaning="index into the closed list of reasons")


class OpenRequest(SealedMessage):
    """Aggregator to key authority: open this blinded total."""

    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i was asked")
    total: bytes = blob("he_total", unit="byte", meaning="encrypted total, blinded uniformly mod t")
    headers: bytes = blob("he_headers", unit="byte", meaning="the signed headers of all uploads")


class Opened(SealedMessage):
    """Key authority to aggregator: the decrypted, still blinded coefficients."""

    total: bytes = blob("he_opened", unit="byte", meaning="coefficients mod t, uniform noise")


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
    seeds: Matrix = blob("cohort", 32, unit="byte", meaning="row i: seed of the i-th blind")


class Witnessed(SealedMessage):
    """Witness to aggregator: I computed the very same bytes."""

    signature: bytes = blob(64, unit="byte", meaning="Ed25519 over the result and its origin")


class Reveal(SealedMessage):
    """Aggregator to key authority: open these results, which the witnesses signed."""

    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i was asked")
    cohort: bytes = blob("roster_mask", unit="bit", meaning="bit i: it takes part in this Ask")
    headers: bytes = blob("upload_headers", unit="byte", meaning="the uploads' signed headers")
    results: bytes = blob("results", unit="byte", meaning="masked ciphertexts, one after the other")
    signatures: Vector = blob("witnesses", 64, unit="byte", meaning="row i: the i-th witness's")


class Cosines(SealedMessage):
    """Key authority to aggregator: one rounded cosine per pair of uploads, and nothing else."""

    cosines: Vector = count(
        "pairs", unit="2^-14", meaning="1 + cosine, row by row from i to j >= i"
    )


class RowBoxes(SealedMessage):
    """Key authority to aggregator: opened rows, still blinded, each sealed to its receiver."""

    boxes: bytes = blob("row_boxes", unit="byte", meaning="one HPKE box per receiver")


class Row(WeightedSumMessage):
    """Aggregator to client: its own combination, opened under a blind, and the blind's seed.

    The aggregator cannot open the box, and the authority never saw the seed.
    """

    box: bytes = blob("row_box", unit="byte", meaning="HPKE box of the key authority")
    seed: bytes = blob(32, unit="byte", meaning="of the blind")


class Batch(SealedMessage):
    """Aggregator to relay: one Ask's mixtures, as the clients sealed them to the relay (O23)."""

    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i was asked")
    headers: bytes = blob("batch_headers", unit="byte", meaning="the signed headers of all bodies")
    bodies: bytes = blob("batch", unit="byte", meaning="one sealed body per client that answered")


class Pool(SealedMessage):
    """Relay to aggregator: a box per place of all clients, in one order that tells no sender."""

    boxes: bytes = blob("pool", unit="byte", meaning="HPKE boxes to the aggregator, padding too")


class Boxes(SealedMessage):
    """Aggregator to client: what the other clients sealed for this one, row i from client i."""

    boxes: bytes = blob("boxes", unit="byte", meaning="one HPKE box per roster client")


class Bundle(SealedMessage):
    """Aggregator to tag server or matcher, and back: one box per client, which it cannot open."""

    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i was asked")
    bundle: bytes = blob("match_bundle", unit="byte", meaning="box of client i; zeros: none")


class Canary(SealedMessage):
    """Matcher to aggregator: the digest of the canary that all clients have (O24)."""

    canary: bytes = blob(32, unit="byte", meaning="digest of a public text's tag")


class Box(SealedMessage):
    """Boxes from or for one client while items are matched; the aggregator opens none."""

    boxes: bytes = blob("match_boxes", unit="byte", meaning="HPKE boxes, one after the other")


class CellBoxes(SealedMessage):
    """Client to aggregator: a share of its vector for each member of its cell (O25)."""

    cell: int = count(unit="cell", meaning="number of the client's cell")
    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i is in it")
    boxes: bytes = blob("match_boxes", unit="byte", meaning="one HPKE box per member, padded")


class CellPart(SealedMessage):
    """Client to aggregator: the sum of the shares that it holds, under the group's blind."""

    label: bytes = blob(32, unit="byte", meaning="hash of what its members drew at random")
    words: bytes = blob("cell_words", unit="byte", meaning="little-endian words of 32 bits")


class CellTotals(ReleasedMessage):
    """Aggregator to client: the totals of all cells, still blinded, and what all were matched by.

    The canary's digest is here so that all clients are seen to have been given one (O8).
    """

    canary: bytes = blob(32, unit="byte", meaning="digest of a public text's tag")
    there: bytes = blob("cell_mask", unit="bit", meaning="bit i: cell i is complete")
    labels: bytes = blob("cell_labels", unit="byte", meaning="32 of each cell; its blinds' label")
    totals: bytes = blob("cell_totals", unit="byte", meaning="words of 32 bits, cell by cell")


class Listed(ReleasedMessage):
    """Aggregator to client, in the form `published`: what all were matched by (O8, O24).

    The lists are with the clients by then; the matcher handed them over.
    """

    canary: bytes = blob(32, unit="byte", meaning="digest of a public text's tag")


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


class Survivors(ReleasedMessage):
    """Aggregator to the holders of shares: whose uploads of this exchange are here."""

    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i was asked")
    survivors: bytes = blob("roster_mask", unit="bit", meaning="bit i: its upload is here")
    slot: int = count(unit="sum", meaning="how many sums of this kind came before in this round")
    evidence: Vector = blob(
        "holders", 144, unit="byte", meaning="what each survivor signed over its upload"
    )


class Vote(SealedMessage):
    """Client to aggregator: I saw this survivor list, and will serve no other one of this sum."""

    signature: bytes = blob(64, unit="byte", meaning="Ed25519 over the list and where it belongs")


class Votes(SealedMessage):
    """Aggregator to a holder of shares: who voted for the list, so that all see the same one."""

    signatures: Vector = blob(
        "voters", 64, unit="byte", meaning="of those who hold what it holds; zeros: no vote"
    )


class Shares(SealedMessage):
    """Client to aggregator: for each client whose shares it holds one share, never two.

    Of a survivor the share of its self-mask's seed, of one that vanished the share of the seed that
    locks its row; zeros for clients that were not asked.
    """

    shares: Vector = blob("holders", 32, unit="byte", meaning="one share per client, sorted")


CONTROL = (
    KeyCall,
    Key,
    CosineKey,
    WeighKey,
    Call,
    Place,
    Farewell,
    Acknowledgement,
    Refusal,
    OpenRequest,
    Opened,
    Examine,
    CosineSeed,
    RowSeeds,
    Witnessed,
    Reveal,
    Cosines,
    RowBoxes,
    Row,
    Batch,
    Pool,
    Boxes,
    Bundle,
    Canary,
    Box,
    CellBoxes,
    CellPart,
    CellTotals,
    Listed,
    PairCall,
    PairBoxes,
    PairDown,
    PairRows,
    Survivors,
    Vote,
    Votes,
    Shares,
    *(kind for kinds in each("messages") for kind in kinds),
)
"""Every message of the layer itself; no policy has to name them."""
