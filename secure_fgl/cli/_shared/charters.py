"""Charters and parties' facts, as commands read, write and show them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from secure_fgl.charters.charter import Charter
    from secure_fgl.charters.facts import Facts

CharterArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A charter.")]
PartyOption = Annotated[
    Path, typer.Option("--party", metavar="PARTY", help="The folder of the party that says so.")
]
RunOption = Annotated[
    str | None,
    typer.Option("--run", metavar="RUN", help="The run's name, where the party joined several."),
]
OutOption = Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write.")]


def load_charter(path: Path) -> Charter:
    """Read a charter; whether it may be trusted is another question.

    Raises:
        UsageError: the file cannot be read.
        EvidenceError: it is no charter.
        OtherVersion: its plan is one of another program.
    """
    from secure_fgl.charters.charter import LIMIT, Charter

    return Charter.decode(_bytes(path, "charter", LIMIT))


def load_facts(path: Path) -> Facts:
    """Read what a party announced; raises UsageError."""
    from secure_fgl.charters.facts import LIMIT, Facts
    from secure_fgl.errors import UsageError

    try:
        return Facts.decode(_bytes(path, "file of a party's facts", LIMIT))
    except UsageError as error:
        raise UsageError(f"{path}: {error.what}", why=error.why, fix=error.fix) from error


def write_charter(path: Path, charter: Charter, *, new: bool = False) -> None:
    """Write a charter as a whole; with `new` never over a file that is there.

    Raises:
        UsageError: it cannot be written, or is there.
    """
    from secure_fgl.errors import UsageError
    from secure_fgl.store.files import replace

    if new and path.exists():
        raise UsageError(
            f"{path} is there already.",
            why="signatures could be in it, and nothing that somebody wrote is replaced",
            fix="choose another --out",
        )
    try:
        replace(path, charter.encode())
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}).") from error


def _bytes(path: Path, what: str, limit: int) -> bytes:
    from secure_fgl.errors import UsageError
    from secure_fgl.store.files import content

    try:
        data = content(path, limit)
    except OSError as error:
        raise UsageError(f"The {what} {path} cannot be read ({error.strerror}).") from error
    if data is None:
        raise UsageError(f"{path} is too large to be a {what}.")
    return data


def parties(charter: Charter) -> list[dict[str, Any]]:
    """Return what a charter says of every party, and what each said to it.

    Raises:
        EvidenceError: a signature is none.
    """
    from secure_fgl.charters.facts import fingerprint

    said, found = charter.approvals(), []
    for name in sorted(charter.carriers):
        party, organisation = charter.roster.party(name), charter.organisations.get(name, "")
        facts = {
            "name": name,
            "role": str(party.role),
            "organisation": organisation,
            "fingerprint": fingerprint(party, organisation, charter.carriers[name]),
            "said": str(said[name].word),
            "reason": said[name].reason,
        }
        found.append(facts)
    return found


def helpers(charter: Charter) -> list[str]:
    """Return the clients of the aggregator's, a witness's or a tag server's organisation.

    They count as colluders.
    """
    from secure_fgl.charters.charter import insiders

    roles = {name: charter.roster.party(name).role for name in charter.carriers}
    return insiders(charter.organisations, roles)


def models_of(charter: Charter) -> dict[str, str]:
    """Return who has which model after the run, by role, and what holds it back."""
    from protocols.wire.roles import Role

    has = {
        Role.CLIENT: "its own: what it was given or trained, the best one and the last; locked",
        Role.AGGREGATOR: "what all clients share",
    }
    roles = sorted({charter.roster.party(name).role for name in charter.carriers})
    found = {str(role): has.get(role, "none") for role in roles}
    if (release := charter.policy.release) is not None:
        attacks = ", ".join(release.requires)
        found["held back"] = f"until {attacks} did not succeed, or every client signed a waiver"
    return found


def facts_of(charter: Charter) -> dict[str, Any]:
    """Return the short facts of a charter, and who is still to sign."""
    from secure_fgl.charters.charter import Word

    said = charter.approvals()
    return {
        "run": charter.run,
        "charter": charter.signed.hex(),
        "signed": [name for name, found in said.items() if found.word is Word.SIGNED],
        "refused": [name for name, found in said.items() if found.word is Word.REFUSED],
        "missing": [name for name, found in said.items() if found.word is Word.NOTHING],
    }


def tell(charter: Charter, path: Path, *, as_json: bool) -> None:
    """Print where a charter was written and how far it is."""
    from secure_fgl.cli._shared.output import print_json, print_pairs

    facts = {"file": str(path), **facts_of(charter)}
    if as_json:
        print_json(facts)
        return
    shown = {n: ", ".join(v) or "-" if isinstance(v, list) else v for n, v in facts.items()}
    print_pairs(list(shown.items()), wrap=False)
