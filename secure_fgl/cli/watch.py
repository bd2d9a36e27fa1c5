"""``secure-fgl audit watch``: what leaves in a run that goes on, held against its plan."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secure_fgl.cli._shared.verb import Format, FormatOption, verb

if TYPE_CHECKING:
    from audits.growing.watch import Seen, Watch

_SECONDS = 0.2  # between two looks
_AT_LEAST = 2.0  # seconds between two tables
_LINE = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_HIDDEN = ("prev", "salt")  # a salt is there so that nobody can guess the entry behind a head


@verb
def watch(
    run: Annotated[
        Path, typer.Argument(metavar="RUN|PARTY", help="A run folder, or a party's own folder.")
    ],
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="End at the first entry that is not planned.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Read what is there now, and end.")] = False,
    format: FormatOption = Format.table,
) -> int:
    """Read a run's ledgers as they grow, until every party closed its own.

    It prints envelopes and bytes by item of the plan and round, beside what the
    plan allows, budgets, refusals and clients that did not answer; what is not
    planned is red. json prints a line an entry. It only reads: no run waits for
    it, and none ends because of it.

    Chain and facts of every entry are checked; signatures, heads and receipts
    are not. For them there is secure-fgl audit verify, after the run.

    Exit code, the first that applies:

    5: a ledger was cut, replaced or changed while it was read, or its chain is broken.

    6: something was recorded that is not planned.

    0: none of these.
    """
    from secure_fgl.errors import DRIFT, OK
    from secure_fgl.watching import Following

    following = Following(run)
    seen, shown = following.watch, 0.0
    try:
        while True:
            over = seen.over  # before the look: what comes later is looked at once more
            count = seen.entries
            for entry in following.look():
                _tell(entry, format)
                if entry.unplanned and fail_fast:
                    return _ended(seen, format, DRIFT)
            moved = seen.entries > count
            if once or over:
                break
            if moved and format is Format.table and time.monotonic() - shown > _AT_LEAST:
                _table(seen)
                shown = time.monotonic()
            time.sleep(_SECONDS)
        following.finish()
    finally:
        following.close()
    return _ended(seen, format, DRIFT if seen.unplanned else OK)


def _ended(seen: Watch, format: Format, code: int) -> int:
    from secure_fgl.cli._shared.output import say

    if format is Format.table:
        _table(seen)
    sys.stdout.flush()
    found = f"; {len(seen.unplanned)} not planned" if seen.unplanned else ""
    state = "every ledger is closed" if seen.over else "not every ledger is closed"
    say(f"{seen.entries} entries read{found}; {state}.")
    return code


def _tell(seen: Seen, format: Format) -> None:
    """Print an entry as a line of JSON; for people, only what is not planned."""
    from secure_fgl.cli._shared.output import say

    if format is Format.json:
        facts: dict[str, Any] = {n: v for n, v in seen.entry.items() if n not in _HIDDEN}
        facts["unplanned"] = seen.unplanned or None
        sys.stdout.write(_LINE.encode(facts) + "\n")
        if seen.unplanned:  # whoever reads the lines as they come sees it at once
            sys.stdout.flush()
    elif seen.unplanned:
        what = f"entry {seen.entry['seq']} of {seen.party}, {seen.entry['item']}: it "
        say(f"NOT PLANNED: {what}{seen.unplanned}.", style="bold red")


def _table(seen: Watch) -> None:
    from audits.report.words import size
    from secure_fgl.cli._shared.output import cell, console, grid, say

    rows: dict[str, dict[int, Any]] = {}
    for (item, number), tally in seen.sent.items():
        rows.setdefault(item, {})[number] = tally
    planned, out = seen.planned, console(stderr=False)
    last = max((number for _, number in seen.sent), default=0)
    table = grid(["Item", "Envelopes, of at most", "Bytes, of at most", f"In round {last}"])
    for item in sorted(rows, key=lambda name: (name in planned, name)):
        of = rows[item].values()
        most, room = planned.get(item, (0, 0))
        now = rows[item].get(last)
        cells = [item, f"{sum(t.count for t in of)} of {most}"]
        cells += [f"{size(sum(t.bytes for t in of))} of {size(room)}"]
        cells += [f"{now.count}, {size(now.bytes)}" if now else ""]
        style = "" if item in planned else "bold red"
        table.add_row(*(cell(text, style) for text in cells))
    out.print(table)
    say(f"Round {last} of {seen.rounds}; {seen.entries} entries.", style="bold", stderr=False)
    for text in _lines(seen):
        say(text, stderr=False)
    for one in seen.unplanned:
        what = f"NOT PLANNED: entry {one.entry['seq']} of {one.party} {one.unplanned}."
        say(what, style="bold red", stderr=False)


def _lines(seen: Watch) -> list[str]:
    """Return budgets, refusals and who is away, a line each."""
    found = [
        f"Budget of {party}: epsilon {e['epsilon']}, delta {e['delta']} of {e['dataset']}"
        for party, e in sorted(seen.budgets.items())
    ]
    codes: dict[tuple[str, str], int] = {}
    for party, entry in seen.refusals:
        codes[party, entry["code"]] = codes.get((party, entry["code"]), 0) + 1
    found += [f"Refused by {party}: {code}, {n} times" for (party, code), n in codes.items()]
    away = [f"{client} (asked in round {number})" for client, number in sorted(seen.away.items())]
    return [*found, f"Away: {', '.join(away)}"] if away else found
