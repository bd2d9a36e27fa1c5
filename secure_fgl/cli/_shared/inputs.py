"""Files that a command is given: approved plans, heads held by others."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protocols.plan.plan import Plan
    from secure_fgl.store.finished_run import Run

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
    from crypto.signing.checkpoint import read
    from crypto.signing.signatures import SigningKey

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
    from secure_fgl.store.sides.party_side import check_name
    from secure_fgl.store.sides.places import RUNS, place_of

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
