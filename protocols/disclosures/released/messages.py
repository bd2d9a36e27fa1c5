"""What is handed out in place of a model that clients compute themselves."""

from __future__ import annotations

from protocols.messages import ReleasedMessage, blob, count


class SharedTotal(ReleasedMessage):
    """Aggregator to client: the last total that moved the model, with its check.

    Before the first one all but `model` is zero.
    """

    exchange: int = count(unit="exchange", meaning="of the Ask whose total this is; 0: none yet")
    before: int = count(unit="exchange", meaning="of the total before it; 0: none")
    round: int = count(unit="round", meaning="of that Ask")
    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i was asked")
    survivors: bytes = blob("roster_mask", unit="bit", meaning="bit i: its upload is in the total")
    total: bytes = blob("model_total", unit="byte", meaning="integers of the total, in few bytes")
    check: bytes = blob("model_check", unit="byte", meaning="words of its check, summed up")
    model: bytes = blob(32, unit="byte", meaning="SHA-256 of the model that this leads to")


MESSAGES = (SharedTotal,)
