"""``secure-fgl audit explain``: what a word of the report means, in plain words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secure_fgl.cli._shared.verb import verb

if TYPE_CHECKING:
    from audits.explain import Page
    from audits.report.models import Finding, Report


_KNOWN = (
    "give A01 to A16, A20 or an attack's name, P01 to P21, a finding's rule, a verdict, a step of "
    "audit verify, a column of a table such as prior, or: exit codes"
)


@verb
def explain(
    word: Annotated[
        list[str],
        typer.Argument(
            metavar="WORD",
            help="An attack (A05), payload (P12), finding (F03 with --run, or its rule), verdict, "
            "step (witnesses), exit code (3), or any word that a table or report prints.",
        ),
    ],
    run: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Say also what this run has of it.")
    ] = None,
) -> int:
    """Explain a word of the report, and what to do about it.

    The texts are no legal advice.
    """
    from audits.explain import find, page_text
    from audits.report.build import build_report
    from secure_fgl.store.finished_run import Run

    wanted = " ".join(word)
    made = build_report(Run(run).view()) if run is not None else None
    finding = _finding(wanted, made)
    pages = find(finding.rule if finding is not None else wanted)
    if not pages:
        _unknown(wanted)
    blocks = [page_text(page).rstrip() for page in pages]
    if made is not None:
        blocks.append(_here(wanted.upper(), made, pages, finding))
    _print("\n\n".join(blocks))
    return 0


def _print(text: str) -> None:
    from secure_fgl.cli._shared.output import clean

    typer.echo(clean(text))


def _finding(word: str, made: Report | None) -> Finding | None:
    """Return the finding that a number such as F03 names in a run; None for another word."""
    from secure_fgl.errors import UsageError

    if not re.fullmatch(r"[Ff]\d{2,}", word):
        return None
    if made is None:
        raise UsageError(
            f"{word.upper()} is the number of a finding in one run.",
            why="findings are numbered anew in every report",
            fix=f"secure-fgl audit explain {word.upper()} --run RUN, or give the finding's rule",
        )
    for finding in made.findings:
        if finding.id == word.upper():
            return finding
    raise UsageError(
        f"The report of this run has no finding {word.upper()}.",
        fix=f"it has {len(made.findings)}: F01 and on",
    )


def _unknown(word: str) -> None:
    from audits.explain import suggested
    from secure_fgl.errors import UsageError

    near = suggested(word)
    fix = f"did you mean {near!r}?" if near else _KNOWN
    raise UsageError(f"There is nothing to explain under {word[:40]!r}.", fix=fix)


def _here(word: str, made: Report, pages: tuple[Page, ...], finding: Finding | None) -> str:
    """Say what a run's report has of a word."""
    import textwrap

    names = {page.word for page in pages} | {word}
    if finding is not None:
        lines = [_told(finding)]
    else:
        lines = [_told(f) for f in made.findings if _about(f, names)]
        lines += [
            f"{_tried(a.id, a.payload, a.what)}: {a.verdict.replace('_', ' ')}. {a.reason}"
            for a in made.attacks
            if names & {a.id, a.payload, a.verdict}
        ]
        lines += [
            f"{e.item}: {e.count} envelopes from {e.sender_role} to {e.recipient_role}."
            for e in made.egress
            if names & set(e.payloads)
        ]
        lines += [
            f"{n.payload} was not tested: {n.why}" for n in made.not_tested if n.payload in names
        ]
    wrapped = [
        textwrap.fill(line, 80, initial_indent="  - ", subsequent_indent="    ") for line in lines
    ]
    head = f"In run {made.subject.run}"
    return "\n".join([head, *(wrapped or ["  Nothing."])])


def _tried(attack: str, payload: str, what: str) -> str:
    """Name a row; of an attack that met nothing of its kind only its id is known."""
    about = ", ".join(filter(None, (payload, what)))
    return f"{attack} on {about}" if about else attack


def _told(finding: Finding) -> str:
    text = f"{finding.id} {finding.severity} {finding.rule}: {finding.message}"
    if finding.waiver is None:
        return f"{text} {finding.remediation}"
    waiver = finding.waiver
    return f"{text} Accepted by {waiver.owner} until {waiver.until}: {waiver.reason}"


def _about(finding: Finding, names: set[str]) -> bool:
    families = ("ATTACK", "ABOVE_PRIOR", "INCONCLUSIVE", "REFUSED")
    family = next((one for one in families if finding.rule.startswith(f"{one}_")), "")
    rest = finding.rule.removeprefix(f"{family}_") if family else finding.rule.partition("_")[2]
    return bool(names & {finding.rule, finding.payload, rest}) or bool(names & {family} - {""})
