"""The end of a run: every session is closed, and its head written, whatever happened before."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Protocol

from secure_fgl.run.parties import Parties
from secure_fgl.run.profile.watch import Watch
from secure_fgl.run.workers.pool import Workers

__all__ = ["close_all"]


class Texts(Protocol):
    """Where the heads go."""

    def text(self, name: str, content: str) -> None:
        """Write a text file."""


def close_all(
    parties: Parties,
    folder: Texts,
    result: dict[str, str] | None,
    workers: Workers | None = None,
    watch: Watch | None = None,
) -> list[BaseException]:
    """End every session and write the heads, whatever happened before; return what went wrong.

    Args:
        parties: all sessions of this process.
        folder: where the heads go.
        result: digests for the end of the aggregator's ledger; None if the run did not finish.
        workers: hold the other sessions; they are ended too.
        watch: of a run that is profiled.
    """
    errors: list[BaseException] = []
    for session in parties.sessions():
        try:
            with watch.party(session.role) if watch is not None else nullcontext():
                session.close(result if session is parties.aggregator else None)
        except Exception as error:  # the other sessions are ended all the same
            session.last_error = error
            errors.append(error)
    notes: dict[str, str] = {}
    if workers is not None:
        notes, failed = workers.end(memories=result is not None)
        errors += failed
    try:
        for name, note in {**parties.checkpoints(), **notes}.items():
            folder.text(f"heads/{name}.checkpoint", note)
    except OSError as error:
        errors.append(error)
    return errors
