"""``secure-fgl check``: the laws, asked of code of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from secure_fgl.cli._shared.options import PluginOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb
from secure_fgl.cli.plan import SetOption

if TYPE_CHECKING:
    from secure_fgl.checking.laws import Outcome, Presets
    from secure_fgl.checking.subject import Subject


@verb
def check(
    file: Annotated[
        str, typer.Argument(metavar="FILE|NAME", help="The plug-in: one file, or an installed one.")
    ],
    settings: SetOption = [],  # noqa: B006 - typer's way to say "none given"; never changed
    plugins: PluginOption = [],  # noqa: B006
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 4 where a law could not be asked.")
    ] = False,
    format: FormatOption = Format.table,
) -> int:
    """Hold an algorithm, a model or data of your own to the laws that ours are held to.

    Plays small runs on generated data (about a minute), says what every message discloses and to
    whom, and ends with what no law can find: a plug-in is trusted code.

    Exit code: 2 the file cannot be used, 3 a law is broken, 4 with --strict, 0.
    """
    from secure_fgl.checking.laws import LAWS, admitted, ask, told
    from secure_fgl.checking.subject import subject_of
    from secure_fgl.cli._shared.output import print_json, say

    with subject_of([file, *plugins], settings) as subject:
        presets = admitted(subject)
        outcomes = []
        for law in LAWS:
            if subject.main.kind in law.kinds:
                say(f"{law.name} ...")
                outcomes.append(ask(law, subject))
        learnt = list(told(subject, presets))
        if format is Format.json:
            print_json(_document(subject, presets, outcomes, learnt))
        else:
            _print(subject, presets, outcomes, learnt)
    return _code(outcomes, strict=strict)


def _code(outcomes: list[Outcome], *, strict: bool) -> int:
    from secure_fgl.checking.laws import BROKEN, UNASKED
    from secure_fgl.errors import FINDINGS, INCONCLUSIVE, OK

    found = {outcome.status for outcome in outcomes}
    if BROKEN in found:
        return FINDINGS
    return INCONCLUSIVE if strict and UNASKED in found else OK


def _document(
    subject: Subject, presets: Presets, outcomes: list[Outcome], learnt: list[tuple[str, str]]
) -> dict[str, object]:
    from secure_fgl.checking.laws import UNSEEN

    plugin = subject.main
    return {
        "plugin": {"name": plugin.name, "kind": str(plugin.kind), "sha256": plugin.digest},
        "presets": presets,
        "laws": [outcome._asdict() for outcome in outcomes],
        "messages": [{"what": what, "text": text} for what, text in learnt],
        "unseen": UNSEEN,
    }


def _print(
    subject: Subject, presets: Presets, outcomes: list[Outcome], learnt: list[tuple[str, str]]
) -> None:
    from secure_fgl.checking.laws import UNSEEN
    from secure_fgl.cli._shared.output import WORDS, cell, console, grid, print_pairs, say

    plugin, out = subject.main, console(stderr=False)
    head = [("plug-in", f"{plugin.name}, {plugin.kind}"), ("sha256", plugin.digest)]
    print_pairs([*head, *((f"under {name}", text) for name, text in presets.items())])
    table = grid(["Law", "", "What was found"])
    for law, status, detail in outcomes:
        table.add_row(cell(law), cell(status, WORDS[status]), cell(detail))
    out.print(table)
    if learnt:
        say("What its messages disclose", style="bold", stderr=False)
        print_pairs(learnt)
        out.print()
    say("What this check cannot see", style="bold", stderr=False)
    print_pairs(UNSEEN.items())
