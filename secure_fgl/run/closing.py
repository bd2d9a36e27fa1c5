"""The end of a run: every session is closed, and its head written, whatever happened before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from protocols.sessions.engine import Session
from secure_fgl.run.parties import Parties
from secure_fgl.run.workers import Workers

__all__ = ["close_all"]


class Texts(Protocol):
    """Where the heads go."""

    def text(self, name: str, content: str) -> None:
        """Write a text file."""

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""


def close_all(
    parties: Parties,
    folder: Texts,
    result: Callable[[], dict[str, str]] | None,
    workers: Workers | None = None,
) -> list[BaseException]:
    """End every session and write the heads, whatever happened before; return what went wrong.

    Args:
        parties: all sessions of this process.
        folder: where the heads go.
        result: makes the digests that the aggregator's ledger ends with, once all others have
            ended; None if the run did not finish.
        workers: hold the other sessions; they are ended too.
    """
    errors: list[BaseException] = []
    notes: dict[str, str] = {}

    def end(session: Session, left: dict[str, str] | None = None) -> None:
        try:
            session.close(left)
        except Exception as error:  # the other sessions are ended all the same
            session.last_error = error
            errors.append(error)

    for session in parties.sessions():
        if session is not parties.aggregator:
            end(session)
    if workers is not None:
        notes, failed = workers.end(memories=result is not None)
        errors += failed
    left = None
    try:
        left = result() if result is not None and not errors else None
    except Exception as error:
        errors.append(error)
    before = len(errors)
    end(parties.aggregator, left)
    if len(errors) > before:  # a result that no ledger names
        folder.remove("result.json")
    try:
        for name, note in {**parties.checkpoints(), **notes}.items():
            folder.text(f"heads/{name}.checkpoint", note)
    except OSError as error:
        errors.append(error)
    return errors
