"""``secure-fgl audit bundle``: everything a verifier needs of a run, in one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secure_fgl.cli._shared.verb import verb

if TYPE_CHECKING:
    from audits.evidence.steps import Verification

COMPLETENESS = (
    "Completeness: no step shows that everything that was sent was recorded. That rests on each "
    "site's gateway being the only way out."
)


@verb
def bundle(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="By default RUN/bundle.zip.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="KEY.pem",
            help="The auditor's Ed25519 key (PEM, mode 600), which signs the statements.",
        ),
    ] = None,
) -> int:
    """Write bundle.zip: all that audit verify needs to check a run offline.

    Plan, policy, roster, ledgers, heads, report, account and metrics go in.
    Models, captured payloads, configurations and secrets do not. Ledgers
    keep their times, because heads are signed over them.

    Without --key nobody signs, and audit verify says so.

    Exits 5 if the evidence is broken; the bundle is written and says so.
    """
    from secure_fgl.cli._shared.output import say
    from secure_fgl.cli._shared.report_files import advice, judge_again
    from secure_fgl.errors import BROKEN, OK
    from secure_fgl.store.bundles import load_key, verify_path, write_bundle
    from secure_fgl.store.finished_run import Run

    signer = load_key(key) if key is not None else None
    judge_again(Run(run))
    with advice():
        path = write_bundle(run, out, key=signer)
    typer.echo(str(path))
    if signer is None:
        say("Not signed: give an auditor's --key.", style="yellow")
    else:
        say(f"Signed with {signer.public.raw.hex()}: tell verifiers this key by another way.")
    outcome = verify_path(path)
    for line in final_words(outcome):
        say(line)
    return OK if outcome.ok else BROKEN


def final_words(outcome: Verification) -> list[str]:
    """Return two sentences, integrity and completeness; only the first is what steps show."""
    from audits.checks.documents import OTHER_PLAN
    from audits.evidence.steps import Status

    failed = [step for step in outcome.steps if step.status is Status.FAIL]
    names = {status: [s.name for s in outcome.steps if s.status is status] for status in Status}
    if [(step.name, step.detail) for step in failed] == [("plan", OTHER_PLAN)]:
        said = (
            "not checked; the plan of this run is another one than --expect-plan names. Compare "
            "the digests with whoever approved it; without --expect-plan the record is checked."
        )
    elif failed:
        said = f"broken; FAILED at {', '.join(names[Status.FAIL])}."
    else:
        left = names[Status.NOT_CHECKED]
        rest = f"; NOT CHECKED: {', '.join(left)}" if left else ""
        reach = f"{outcome.so_far}; " if outcome.so_far else ""
        said = f"{reach}nothing was changed that {len(names[Status.OK])} steps could see{rest}."
    return [f"Integrity: {said}", COMPLETENESS]


def load_trust(path: Path) -> dict[str, str]:
    """Read public keys known from elsewhere: a JSON file {name: 64 hexadecimal digits}.

    Raises:
        UsageError: it is not such a file, or names nobody.
    """
    from secure_fgl.cli._shared.inputs import _document
    from secure_fgl.errors import UsageError

    fix = "give a JSON file {name: Ed25519 public key, 64 lower-case hexadecimal digits}"
    found = _document(path, "list of keys", fix)
    if not isinstance(found, dict) or not found:
        raise UsageError(f"{path} is no list of keys.", fix=fix)
    wrong = [value for value in found.values() if not _is_key(value)]
    if wrong:
        upper = all(isinstance(value, str) and _is_key(value.lower()) for value in wrong)
        why = "they are written in upper case" if upper else "they are texts of another kind"
        what = f"{path} is no list of keys: {len(wrong)} of {len(found)} are no public key."
        raise UsageError(what, why=why, fix=fix)
    return dict(found)


def _is_key(value: object) -> bool:
    if not isinstance(value, str) or len(value) != 64:
        return False
    return set(value) <= set("0123456789abcdef")
