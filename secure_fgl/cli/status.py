"""``secure-fgl status``: how far a run between organisations is, seen from one party's folder."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.charters import RunOption
from secure_fgl.cli._shared.verb import verb


class Shown(StrEnum):
    """For people, for machines, or for a collector of Prometheus' text files."""

    table = "table"
    json = "json"
    prometheus = "prometheus"


@verb
def status(
    party: Annotated[Path, typer.Argument(metavar="PARTY", help="The party's folder.")],
    run: RunOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Print it again as it changes, until the run ends.")
    ] = False,
    format: Annotated[
        Shown, typer.Option("--format", help="For people, machines, or Prometheus.")
    ] = Shown.table,
) -> int:
    """Say how far a run is: round, exchange, who is awaited and away, bytes, budget.

    It reads what the party's process notes in its folder, and asks nobody. Nothing
    of data, scores or keys is in it: only what the network and the plan say.
    """
    from secure_fgl.sites.shown import facts_of
    from secure_fgl.sites.status import State
    from secure_fgl.store.sides.party_side import place_of

    place, shown = place_of(party, run), None
    while True:
        now = time.time()
        facts = facts_of(place, now)
        over = facts["state"] in (State.OVER, State.REFUSED)
        moved = facts["at"], facts["process"], now // _AT_LEAST
        if moved != shown:
            _print(facts, format)
            shown = moved
        if over or not watch:
            return 0
        time.sleep(_SECONDS)


_SECONDS = 1.0
_AT_LEAST = 10.0  # seconds; how long somebody is awaited changes without an event


def _print(facts: dict[str, object], format: Shown) -> None:
    from secure_fgl.cli._shared.output import print_json, print_pairs
    from secure_fgl.sites.shown import pairs_of, prometheus

    if format is Shown.json:
        print_json(facts)
    elif format is Shown.prometheus:
        typer.echo(prometheus(facts), nl=False)
    else:
        print_pairs(pairs_of(facts), wrap=False)
