"""``secure-fgl audit attack``: what the messages of a finished run still reveal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secure_fgl.cli._shared.charters import RunOption
from secure_fgl.cli._shared.gate import FailOn
from secure_fgl.cli._shared.options import PluginOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb

if TYPE_CHECKING:
    from audits.attacks import AttackReport, AttackRow, NotTested, Value
    from secure_fgl.store.finished_run import Run

_UNITS = {"s": 1, "m": 60, "h": 3600}


class Profile(StrEnum):
    """How much work."""

    quick = "quick"
    default = "default"


ProfileOption = Annotated[
    Profile, typer.Option(help="quick: the first captured round. default: all, with replicas.")
]
AttacksOption = Annotated[
    str, typer.Option(metavar="LIST", help="Ids or names, separated by commas. All, if empty.")
]
TimeOption = Annotated[
    str, typer.Option(metavar="TIME", help="Begin no further attack after it: 90s, 12m, 1h.")
]


@verb
def attack(  # noqa: PLR0913, PLR0917 - switches of a command line, all by name
    run: Annotated[
        Path, typer.Argument(metavar="RUN|PARTY", help="A run folder, or a party's own folder.")
    ],
    name: RunOption = None,
    profile: ProfileOption = Profile.quick,
    attacks: AttacksOption = "",
    time_budget: TimeOption = "",
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The data folder; else the one in SECURE_FGL_DATA."),
    ] = None,
    plugins: PluginOption = [],  # noqa: B006 - typer's way to say "none given"; never changed
    fail_on: Annotated[
        FailOn, typer.Option(help="Exit 3 from this severity on. Hides none of 5, 6 and 7.")
    ] = FailOn.high,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 4 where an attack was inconclusive or not run.")
    ] = False,
    format: FormatOption = Format.table,
) -> int:
    """Attack what left, as each receiver saw it, and write the verdicts into the report.

    Runs where the data lie; what each client said before protection is computed again and never
    stored. In a client's folder it uses that client's captures and data alone. Every score stands
    beside chance, the best guess without the message, the same attack without protection and on
    somebody else's message. A verdict is FAIL, PASS, ABOVE_PRIOR (it tells something, how
    much is not known), INCONCLUSIVE (the attack was too weak, or the clients too few), INVALID,
    NOT_APPLICABLE, NOT_TESTED or ERROR. All chance comes from the run's own ledgers. An earlier
    FAIL, ABOVE_PRIOR or INCONCLUSIVE stays for attacks that are not asked for now, or cannot be run
    any more; an earlier PASS becomes NOT_TESTED. A FAIL of --profile default stays
    whatever quick finds.

    Writes RUN/attacks.json and the report anew. Exit code, the first that applies: 5 evidence
    broken, 6 not planned, 7 a privacy claim falsified, 3 findings, 4 with --strict, 0.
    """
    from audits.attacks import attack as run_attacks
    from audits.report.build import build_report
    from secure_fgl.attack_inputs.materials import material
    from secure_fgl.cli._shared.gate import codes_of, tell_codes
    from secure_fgl.cli._shared.inputs import run_at
    from secure_fgl.cli._shared.output import print_json, say
    from secure_fgl.cli._shared.report_files import advice, judge_again
    from secure_fgl.elsewhere.at_site import material_of_site
    from secure_fgl.errors import usage
    from secure_fgl.store.finished_run import FORMATS

    finished, budget = run_at(run, name), _seconds(time_budget)
    ids = [word for word in re.split(r"[,\s]+", attacks) if word]
    look = material if finished.party is None else material_of_site
    found_material = look(  # verifies first
        finished, profile=profile.value, data=data, plugins=plugins
    )
    with advice():
        finished.check_report()  # an edited report is evidence; it is not overwritten
        judge_again(finished)
    earlier = _earlier(finished)
    try:
        found = run_attacks(
            found_material, ids, profile=profile.value, earlier=earlier, time_budget=budget
        )
    except ValueError as error:
        raise usage(error) from error
    finished.keep("attacks.json", found.text().encode())
    finished.report(FORMATS)
    report = build_report(finished.view())
    if format is Format.json:
        print_json(found.text())
    else:
        looked = found_material.compared is not None and found_material.compared.matrices
        print_found(found, report.not_tested, "" if looked else found_material.missing)
        say(f"Report: {finished.path / 'report' / 'report.html'}", stderr=False)
    codes = codes_of(report, fail_on, strict=strict)
    tell_codes(codes)
    return codes[0]


def _earlier(run: Run) -> AttackReport | None:
    """Return what attacks on this run found before; None if there is nothing to rely on."""
    from audits.attacks import AttackReport
    from protocols.errors import EvidenceError

    try:
        text = run.view().attacks_text
        return AttackReport.parse(text) if text else None
    except EvidenceError:  # spoilt; the report has a finding that says so until now
        return None


def _seconds(text: str) -> float | None:
    """Return a time in seconds; raises UsageError for what is none."""
    from secure_fgl.errors import UsageError

    if not text:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if found is None:
        raise UsageError(
            f"--time-budget {text[:20]!r} is no time.", fix="write 90s, 12m or 1h, for example"
        )
    return float(found[1]) * _UNITS[found[2]]


def print_found(found: AttackReport, untested: Iterable[NotTested], missing: str) -> None:
    """Print what attacks found, what was not tested, and why nothing captured was looked at."""
    from audits.report.attack_words import clients, power
    from audits.report.attack_words import verdict as shown
    from secure_fgl.cli._shared.output import say

    _print_figures(found.rows)
    for row in found.rows:
        said = power(row) if row.verdict == "PASS" else row.reason
        over = f" ({clients(row)})" if row.replicas else ""
        say(f"{_asked(row)} {shown(row)}: {said}{over}", stderr=False)
    for claim in found.claims:
        say(f"Claim {claim.status.replace('_', ' ')}: {claim.text}", stderr=False)
    for gap in untested:
        say(f"Not tested: {gap.payload}: {gap.why}", stderr=False)
    if missing:
        say(f"Nothing captured was looked at: {missing}", style="yellow")
    say("Left: what the receiver learnt. Raw: the same attack without protection.", stderr=False)


def _print_figures(rows: Sequence[AttackRow]) -> None:
    """Print a line of figures for each row, and its question on a line of its own below."""
    from rich.text import Text

    from audits.report.attack_words import verdict as shown
    from secure_fgl.cli._shared.output import WORDS, cell, console

    lines = [["Attack", "Chance", "Prior", "Raw", "Null", "Left (95 %)", "Verdict"]]
    for row in rows:
        values = [v.value if v is not None else "-" for v in (row.prior, row.raw, row.null)]
        named, left = f"{row.id} {row.payload}".rstrip(), _interval(row.protected)
        lines.append([named, row.chance or "-", *values, left, shown(row)])
    wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
    out, styles = console(stderr=False), ["bold", *(WORDS.get(row.verdict, "") for row in rows)]
    for place, (line, style) in enumerate(zip(lines, styles, strict=True)):
        figures = "".join(text.ljust(size + 2) for text, size in zip(line[:-1], wide, strict=False))
        out.print(Text.assemble(cell(figures), cell(line[-1], style)), soft_wrap=True)
        if place:
            out.print(cell(f"  {rows[place - 1].what or rows[place - 1].name}"), soft_wrap=False)


def _asked(row: AttackRow) -> str:
    """Name a row: the attack, the payload, and the question or else the attack's name."""
    return " ".join(filter(None, (row.id, row.payload, row.what or row.name)))


def _interval(found: Value | None) -> str:
    """Return a value and its interval; a fact has none."""
    if found is None:
        return "-"
    ends = "" if found.low == found.high else f" ({found.low} to {found.high})"
    return f"{found.value}{ends}"
