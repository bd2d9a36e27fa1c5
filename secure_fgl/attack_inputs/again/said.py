"""What one client said in an Ask, and what it would have said had it remembered nothing.

Some algorithms let clients remember what they were handed before (FedGATE's trackers), so that the
mean of all clients' gradients goes into what each says next. Another client's message then holds
something of the victim as well, and is no message in which the victim had no part: the null
control of an attack needs the answer of a client that remembers nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from algorithms.tasks import Site
from audits.attacks import Exposure, Truth
from protocols.forms import Exchange
from protocols.messages import Message
from protocols.sessions.store.recording import Captured
from secure_fgl.attack_inputs.updates import Arrays, fields, updates
from secure_fgl.config import Config

__all__ = ["SaidInAsk", "afresh", "answered_again"]


class Settings(Protocol):
    """The settings of a run, as whoever replays it holds them."""

    @property
    def config(self) -> Config:
        """As the run's folder has it."""

    @property
    def task(self) -> Any:
        """Of the run."""


@dataclass(frozen=True, repr=False)
class SaidInAsk:
    """What a client said in one Ask, computed again, and what is true of it."""

    client: str
    truth: Truth
    answer: Captured
    exchange: Exchange
    messages: tuple[Message, ...]
    afresh: Arrays | None

    def exposure(
        self,
        run: Settings,
        update: type[Message],
        seen: Arrays | None,
        cohort: int,
        *,
        alone: bool = False,
    ) -> Exposure:
        """Return the round as its attacker sees it.

        Args:
            run: whose settings hold.
            update: the message that holds a change of the model.
            seen: what the receiver learnt of it; None: nothing.
            cohort: clients whose data `seen` holds.
            alone: its reader alone vouches for it.
        """
        model, options = run.config.model, run.config.algorithm
        steps = options.options.get(options.name, {}).get("steps", 1)
        return Exposure(
            client=self.client,
            round=self.answer.round,
            known=fields(*self.answer.given),
            raw=fields(next(m for m in self.messages if type(m) is update)),
            seen=seen,
            cohort=cohort if seen is not None else 0,
            truth=self.truth,
            lr=run.task.lr,
            steps=options.epochs * int(steps),
            optimiser=model.optimiser or "",
            afresh=self.afresh,
            alone=alone,
        )


def answered_again(site: Site, answer: Captured, exchange: Exchange) -> Any:
    """Let a client answer as it was then, and leave its records as they were before.

    An algorithm may give a site another view of its records while it answers (FedGCN: a graph of
    the rows that it was told, where features stand at other nodes). What is asked about the records
    afterwards is asked about the client's own.

    Args:
        site: of the client; its memory and draws are those of the answer afterwards.
        answer: what was captured of it.
        exchange: what it was asked.

    Returns:
        What it said, a message or several.
    """
    site.memory, site.draws = dict(answer.memory), dict(answer.draws)
    own = site.data
    try:
        return exchange.answer(site, *answer.given)
    finally:
        site.data = own


def afresh(site: Site, answer: Captured, exchange: Exchange) -> Arrays | None:
    """Return the update of a client that remembers nothing, to what it was given.

    The site's memory and draws are changed; whoever asks sets both again.

    Args:
        site: of the client.
        answer: what was captured of it.
        exchange: what it was asked.

    Returns:
        None where it remembers nothing that others told it, or cannot answer without: an attack's
        null control is then what the client did say.
    """
    if not _handed(answer.memory):
        return None
    try:
        said = answered_again(site, replace(answer, memory={}), exchange)
    except LookupError:  # the algorithm looks up what it remembers
        return None
    (update,) = updates(exchange)
    parts = said if isinstance(said, tuple) else (said,)
    found = next((part for part in parts if type(part) is update), None)
    return None if found is None else fields(found)


def _handed(kept: Any) -> bool:
    """Tell whether a message that was handed out lies in what a client remembers."""
    if isinstance(kept, Mapping):
        return any(map(_handed, kept.values()))
    if isinstance(kept, tuple | list):
        return any(map(_handed, kept))
    return isinstance(kept, Message)
