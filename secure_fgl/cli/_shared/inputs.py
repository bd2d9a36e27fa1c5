"""Files that a command is given: approved plans, heads held by others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from protocols.plan.plan import Plan
    from secure_fgl.store.finished_run import Run
    from secure_fgl.store.trained_model import TrainedModel

LARGEST = 1 << 26  # bytes; a plan of 1,000 clients takes 100 kB, a head 300 B


def load_plan(path: Path) -> Plan:
    """Read a plan as ``secure-fgl plan --out`` writes it.

    Raises:
        OtherVersion: it is a plan of an older or a newer program.
        UsageError: the file cannot be read, or is not exactly a plan.
    """
    from pydantic import ValidationError

    from protocols.plan.plan import Plan
    from secure_fgl.errors import UsageError

    fix = "make one with: secure-fgl plan CONFIG --out plan.json"
    document = _document(path, "plan", fix)
    try:
        plan = Plan.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "top level"
        why = f"{where}: {first['msg'].removeprefix('Value error, ')}"
        raise UsageError(f"{path} is not a plan.", why=why, fix=fix) from error
    # A plan is approved by its digest, so there is one way to write it: no value is converted.
    if json.dumps(plan.document(), sort_keys=True) != json.dumps(document, sort_keys=True):
        raise UsageError(
            f"{path} is not written as plans are.", why="a value has another type", fix=fix
        )
    return plan


def load_heads(path: Path) -> dict[str, str]:
    """Read checkpoints that other parties hold, by party name.

    Args:
        path: a JSON file ``{party: text}``, or a folder of ``<party>.checkpoint`` files.

    Raises:
        UsageError: neither of the two, without a single head, or one is not in the form of one.
    """
    from secure_fgl.errors import UsageError

    fix = (
        "give a JSON file {party: checkpoint text}, or a folder of <party>.checkpoint files that "
        "the other parties kept"
    )
    if path.is_dir():
        notes = {f.stem: _bytes(f, "head", fix) for f in sorted(path.glob("*.checkpoint"))}
        heads: Any = {party: note.decode("utf-8", "replace") for party, note in notes.items()}
    else:
        heads = _document(path, "list of heads", fix)
    texts = isinstance(heads, dict) and all(isinstance(text, str) for text in heads.values())
    if not heads or not texts:
        raise UsageError(f"{path} holds no heads.", fix=fix)
    spoilt = sum(not _is_head(text) for text in heads.values())
    if spoilt:
        raise UsageError(
            f"{path} holds no heads: {spoilt} of {len(heads)} texts are no checkpoint.",
            why="it is another file, such as one of keys for --trust, or was cut or edited by hand",
            fix=fix,
        )
    return dict(heads)


def _is_head(text: str) -> bool:
    """Tell whether a text has the form of a signed checkpoint; whose it is the steps check."""
    from crypto.errors import CryptoError, InvalidSignature
    from crypto.merkle import read
    from crypto.signing import SigningKey

    lines = text.split("\n")
    signer = lines[4].split(" ")[1:2] if len(lines) > 4 else []
    try:
        # No party has this key, so a text in the right form is refused for its signature only.
        read(text, name="".join(signer), key=SigningKey.generate().public)
    except InvalidSignature:
        return lines[1].isdecimal()
    except CryptoError:
        return False
    return True


def run_at(path: Path, name: str | None) -> Run:
    """Return a run folder's run, or one party's side of the run of a name.

    Raises:
        UsageError: it is neither, is of another name, or the party joined several and none is
            named.
    """
    from secure_fgl.store.finished_run import Run
    from secure_fgl.store.sides.party_side import RUNS, check_name, place_of

    found = Run(place_of(path, name) if name is not None and (path / RUNS).is_dir() else path)
    check_name(found.name, name)
    return found


def choose(what: str, name: str, known: Iterable[str]) -> str:
    """Return `name` if it is known; raises UsageError that names the nearest one."""
    from protocols.strict import nearest
    from secure_fgl.errors import UsageError

    names = list(known)
    if name not in names:
        raise UsageError(f"There is no {what} {name[:40]!r}.", fix=nearest(name, names))
    return name


def _document(path: Path, what: str, fix: str) -> Any:
    from audits.evidence.run_files import read_json
    from protocols.errors import EvidenceError
    from secure_fgl.errors import UsageError

    data = _bytes(path, what, fix)
    try:
        return read_json(data, limit=LARGEST, what=what)
    except EvidenceError as error:
        why = "it was cut, edited by hand, or is another file"
        raise UsageError(f"The {what} {path} is not JSON.", why=why, fix=fix) from error


def _bytes(path: Path, what: str, fix: str) -> bytes:
    from secure_fgl.errors import UsageError
    from secure_fgl.store.files import content

    try:
        data = content(path, LARGEST)
    except OSError as error:
        raise UsageError(
            f"The {what} {path} cannot be read ({error.strerror}).", fix="check the path"
        ) from error
    if data is None:
        raise UsageError(f"{path} is too large to be a {what}.", fix=fix)
    return data


# --- Plug-ins that somebody gives to a command on a finished run ---


@contextmanager
def given_plugins(run: Path, given: Sequence[str]) -> Iterator[None]:
    """Let a run's plug-ins be found by name, where somebody gave their files.

    Args:
        run: the run folder; its plan says which files they must be.
        given: files, or names of installed ones. None of a run's own naming is taken.

    Raises:
        PlanDrift: what was given is not what the plan names, by name and digest.
        UsageError: a file cannot be used, or the folder holds no plan.
    """
    from secure_fgl.store.finished_run import Run

    if not given:
        yield
        return
    with Run(run).given(given):
        yield


# --- Which model of a run a command is to use ---

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
RunOrModel = Annotated[
    Path, typer.Argument(metavar="RUN|FILE", help="A run folder, or a model's file.")
]
SiteFolder = Annotated[
    Path, typer.Option("--site", metavar="DIR", help="A site's folder, as docs/own-data.md says.")
]
OfOption = Annotated[
    str | None,
    typer.Option(
        "--of",
        metavar="SITE",
        help="Whose model; by default that of DIR's own name where it opens here, else the "
        "shared one.",
    ),
]


def model_for(run: Path, folder: Path, of: str | None) -> TrainedModel:
    """Return the model of a site, or the shared one, or that of a file, and say which it is."""
    from secure_fgl.cli._shared.report_files import advice
    from secure_fgl.store.client_models import NoSuchModel
    from secure_fgl.store.finished_run import Run

    if run.is_file():
        return _told(_of_file(run, of))
    finished, wanted = Run(run), of or folder.expanduser().resolve().name
    with advice():
        try:
            trained = finished.trained(wanted, folder=of is None)
        except NoSuchModel:
            if of is not None:
                raise
            trained = finished.trained()
    return _told(trained, finished.checkpoint()[1])


def _of_file(path: Path, of: str | None) -> TrainedModel:
    from secure_fgl.errors import UsageError
    from secure_fgl.model_file import load_model

    trained = load_model(path)
    if of not in (None, trained.facts.get("site"), trained.facts.get("client")):
        raise UsageError(
            f"{path} holds one model, and it is not that of {of}.", fix="leave --of out"
        )
    return trained


def _told(trained: TrainedModel, checkpoint: bytes = b"") -> TrainedModel:
    """Say which model it is, and what to know of it.

    Args:
        trained: the model.
        checkpoint: of the one that all share, of whose weights a client's may be; empty for none.
    """
    from audits.report.learning import NEVER, NEVER_TRAINED
    from secure_fgl.cli._shared.output import say
    from secure_fgl.run.model_digest import npz_digest

    whose, facts = trained.facts.get("site"), trained.facts
    if checkpoint and npz_digest(checkpoint) == facts["weights_sha256"]:
        whose = None
    if facts.get("chosen") == NEVER:
        say(f"{NEVER_TRAINED}.", style="bold yellow")
    if facts.get("after_rounds") != facts.get("best_after_rounds"):
        say(
            f"It is the one after {facts['after_rounds']} rounds: this client was away when the "
            f"best one was scored, after {facts['best_after_rounds']}.",
            style="yellow",
        )
    if trained.agreed is None and not trained.spec.columns and trained.spec.task != "rating":
        say(
            "The model knows its columns by number alone: nothing can check that these are they.",
            style="yellow",
        )
    say(f"Model: {f'that of {whose}' if whose else 'the shared one'}, {trained.facts['algorithm']}")
    return trained


def data_digest(run: Path, site: str) -> str | None:
    """Return the digest of the records that a site had in a run; None if nothing here knows it."""
    from secure_fgl.store.client_models import NoSuchModel
    from secure_fgl.store.finished_run import Run

    if run.is_file():
        facts = _of_file(run, None).facts
        return facts.get("data_sha256") if facts.get("site") == site else None
    try:
        return cast(str | None, Run(run).about(site).get("data_sha256"))
    except NoSuchModel:
        return None
