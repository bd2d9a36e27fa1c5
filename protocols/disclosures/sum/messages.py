"""What it takes to agree on whose answers a sum counts, and to have it opened."""

from __future__ import annotations

from protocols.messages import ReleasedMessage, SealedMessage, Vector, blob, count


class OpenRequest(SealedMessage):
    """Aggregator to key authority: open this blinded total."""

    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i was asked")
    total: bytes = blob("he_total", unit="byte", meaning="encrypted total, blinded uniformly mod t")
    headers: bytes = blob("he_headers", unit="byte", meaning="the signed headers of all uploads")


class Opened(SealedMessage):
    """Key authority to aggregator: the decrypted, still blinded coefficients."""

    total: bytes = blob("he_opened", unit="byte", meaning="coefficients mod t, uniform noise")


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


class AllHere(ReleasedMessage):
    """Aggregator to the holders of shares: every client of this cohort uploaded (ADR 0035).

    It has no field for a list: whoever is asked is a survivor.
    """

    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i was asked")
    slot: int = count(unit="sum", meaning="how many sums of this kind came before in this round")
    evidence: Vector = blob(
        "holders", 144, unit="byte", meaning="what each client signed over its upload"
    )


class SelfShares(SealedMessage):
    """Client to aggregator: its vote for the whole cohort, and its shares of self-masks.

    Who answers so serves no other list of this slot, and gives no share of a row in it.
    """

    signature: bytes = blob(64, unit="byte", meaning="Ed25519 over the list and where it belongs")
    shares: Vector = blob(
        "holders", 32, unit="byte", meaning="one share of a self-mask per client, sorted"
    )


class BlindTotal(SealedMessage):
    """Aggregator to the client that reads a total: the total under that client's blind (O11).

    Of exchange 0: this client reads none, and the rest says nothing.
    """

    exchange: int = count(unit="exchange", meaning="of the Ask whose total this is; 0: none")
    answers: int = count(unit="client", meaning="how many clients' values are in it")
    total: bytes = blob("blind_total", unit="byte", meaning="residues, uniform but to this client")


MESSAGES = (
    *(OpenRequest, Opened, Survivors, Vote, Votes, Shares, AllHere, SelfShares),
    BlindTotal,
)
