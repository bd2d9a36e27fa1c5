"""Exchanges: the Asks that a form makes, what they hand out, and what comes back."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from protocols.disclosures.names import BACK, GIVEN, Disclosure
from protocols.messages import Message, addressed

Answer = Callable[..., Message | tuple[Message, ...] | None]


RESERVED = frozenset({"draw", "key", "pair", "refusal", "totals"})
"""Names of exchanges that belong to the message layer."""


@dataclass(frozen=True)
class Exchange:
    """One kind of Ask: what is given, what comes back, and what the client does.

    Attributes:
        name: short name, used in plan items (``train.up.SUM``).
        given: message types handed out; the first is what the answer is about.
        back: message types that come back.
        answer: runs at the client: ``answer(site, *given) -> message(s) or None``.
        per_round: how often in each round, at most; of an Ask whose total one client reads, how
            often each client reads one (`Form.among`).
        outside: how often outside rounds in a whole run, at most.
        held_out: which of `back` are computed from validation and test records, and from models.
        due: in how many of so many rounds it is asked, if none is lost; None: in all of them.
        follows: which of `back` follow from what the client was handed and from none of its data,
            as the algorithm's file says (trusted): noise of what it was handed covers them.
    """

    name: str
    given: tuple[type[Message], ...]
    back: tuple[type[Message], ...]
    answer: Answer
    per_round: int = 1
    outside: int = 0
    held_out: tuple[type[Message], ...] = ()
    due: Callable[[int], int] | None = None
    follows: tuple[type[Message], ...] = ()

    def __post_init__(self) -> None:
        """Refuse what has no meaning in its direction; raises TypeError."""
        for kinds, allowed, where in (
            (self.given, GIVEN, "given"),
            (self.back, BACK, "asked back"),
        ):
            for kind in kinds:
                read = allowed is GIVEN and addressed(kind)  # a total that one client reads
                if kind.disclosure not in allowed and not read:
                    raise TypeError(
                        f"{self.name}: {kind.__name__} discloses {kind.disclosure}, which cannot "
                        f"be {where}; possible: {', '.join(allowed)}"
                    )
        if not self.given:
            raise TypeError(f"{self.name}: an exchange gives at least one message")
        sums = [kind for kind in self.back if kind.disclosure is Disclosure.SUM]
        several = len(sums) > 1 and any(map(addressed, sums))
        if several or sum(map(addressed, self.given)) > 1:
            raise TypeError(
                f"{self.name}: a total that one client reads is the only sum of its Ask"
            )

    @property
    def addressed(self) -> bool:
        """Whether one client reads the total of what comes back."""
        return any(map(addressed, self.back))

    def times(self, rounds: int) -> int:
        """Return how often this exchange may happen in a run of `rounds` rounds."""
        return self.per_round * rounds + self.outside


def strictest(kinds: Sequence[type[Message]]) -> Disclosure:
    """Return the strictest disclosure of what is given: it decides the protection of all of it."""
    return min((kind.disclosure for kind in kinds), key=GIVEN.index)


def exchange_of(given: type[Message], answer: Answer) -> Exchange:
    """Build an :class:`Exchange` by reading what comes back off the answer's return annotation.

    Raises:
        TypeError: the annotation is missing or holds something that is not a message.
    """
    hint = typing.get_type_hints(answer).get("return", Message)
    kinds = typing.get_args(hint) if typing.get_origin(hint) is tuple else (hint,)
    back = tuple(kind for kind in kinds if kind is not type(None))
    for kind in back:
        if not (isinstance(kind, type) and issubclass(kind, Message) and kind is not Message):
            raise TypeError(
                f"{answer.__name__} must be annotated with the message types it returns, "
                "for example '-> Update' or '-> tuple[Model, Portrait]' or '-> None'"
            )
    return Exchange(answer.__name__, (given,), back, answer)
