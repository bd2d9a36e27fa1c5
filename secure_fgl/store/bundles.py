"""``bundle.zip`` on disk: made from a run folder, and verified without unpacking it.

The environment that a bundle tells about is the one that it was made in.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from audits.bundle.archive import BUNDLE_LIMIT, pack, read_manifest, unpack
from audits.bundle.making import make
from audits.bundle.statements import SVR, statement
from audits.bundle.statements import svr as svr_of
from audits.checks.bundle import verify_bundle, verify_run
from audits.evidence.steps import Verification
from crypto.signing import SigningKey, canonical
from secure_fgl.errors import UsageError
from secure_fgl.isolation.kernel import close_memory
from secure_fgl.store.files import content, create, open_plain
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.party_side import check_name, holds_runs, place_of, side_of

__all__ = [
    "environment",
    "load_key",
    "looks_packed",
    "result_statement",
    "today",
    "verify_path",
    "write_bundle",
    "write_new",
]

_US = "secure-fgl"
_ZIP_FIRST, _ZIP_LAST = b"PK\x03\x04", b"PK\x05\x06"
_ZIP_TAIL = 22 + 0xFFFF  # bytes; the last record of a ZIP file with its longest comment
_KEY_LIMIT = 4096  # bytes; a PEM of Ed25519 has 119
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MAKE_KEY = "make one with: openssl genpkey -algorithm ed25519 -out auditor.pem"


def today() -> str:
    """Return the day in UTC, ``YYYY-MM-DD``: no statement of ours says more (O29)."""
    return datetime.now(UTC).strftime("%Y-%m-%d")


def write_bundle(
    run: str | Path,
    out: str | Path | None = None,
    *,
    key: SigningKey | None = None,
    day: str = "",
) -> Path:
    """Write a run's bundle and return its path.

    Args:
        run: the run folder.
        out: the file; by default ``bundle.zip`` in the run folder. It must not exist.
        key: the auditor's; None leaves the bundle unsigned.
        day: ``YYYY-MM-DD``; by default today.

    Raises:
        EvidenceError: the run's documents cannot be read, or its report was edited.
        UsageError: there is no run, or the file cannot be written.
    """
    folder = Run(run)
    if folder.party is not None:
        raise UsageError(
            f"{run} is one party's side of a run, and a bundle is of a whole run.",
            fix="secure-fgl site hand-over PARTY; whoever has all sides gathers and bundles them",
        )
    path = Path(out) if out is not None else folder.path / "bundle.zip"
    files = make(folder.view(), environment=environment(), day=day or today(), signer=key)
    packed = pack(files)
    return write_new(path, packed)


def verify_path(
    path: str | Path,
    *,
    heads: Mapping[str, str] | None = None,
    expect_plan: str | None = None,
    trusted: Mapping[str, str] | None = None,
    svr: tuple[Path, SigningKey] | None = None,
    run: str | None = None,
) -> Verification:
    """Check a bundle, a run folder, or a party's own side of a run.

    Args:
        path: of one of them.
        run: the name that the run of a folder must have, or which of a party's runs is meant; None:
            any, or the one that there is.
        heads: signed heads that other parties hold, by party.
        expect_plan: digest (hex) of the plan that was approved.
        trusted: public signing keys (hex) known from elsewhere, by name.
        svr: of a bundle, where to write a signed statement of the steps that passed, and the
            verifier's key. It is not written if a step failed.

    Raises:
        UsageError: it is neither, or a file cannot be read or written.
    """
    place = Path(path)
    if not place.is_file():
        if run is not None and holds_runs(place):
            place = place_of(place, run)  # as every command that takes --run
        if not (side_of(place)[0] / "plan.json").is_file():
            raise _neither(place, "no plan.json in it" if place.is_dir() else "no such file")
        if svr is not None:
            raise UsageError("Only of a bundle can be signed what passed.", fix="give bundle.zip")
        found = Run(place)
        check_name(found.name, run)
        return verify_run(found.view(heads=heads, expect_plan=expect_plan), trusted=trusted)
    if run is not None:
        raise UsageError("--run is for folders; a bundle is of one run.", fix="leave it out")
    data = _read(place)
    if not looks_packed(data):
        raise _neither(place, "it is a file of another kind, or most of it is gone")
    outcome = verify_bundle(data, heads=heads, expect_plan=expect_plan, trusted=trusted)
    if svr is not None and outcome.ok:
        write_new(svr[0], result_statement(data, outcome, svr[1], name=place.name, day=today()))
    return outcome


def _neither(path: Path, why: str) -> UsageError:
    fix = "give a bundle.zip (secure-fgl audit bundle RUN makes one), or a run or party folder"
    return UsageError(f"{path} is neither a bundle nor a run folder.", why=why, fix=fix)


def looks_packed(data: bytes) -> bool:
    """Tell whether bytes begin or end as a ZIP file does.

    One of the two is enough: a bundle that was spoilt at one end is broken evidence, and not some
    other file that was given by mistake.
    """
    return data.startswith(_ZIP_FIRST) or _ZIP_LAST in data[-_ZIP_TAIL:]


def result_statement(
    data: bytes, outcome: Verification, key: SigningKey, *, name: str, day: str
) -> bytes:
    """Return svr/v0.2 about a bundle's bytes, in a DSSE envelope: the steps that passed.

    Args:
        data: the bundle.
        outcome: of its verification.
        key: the verifier's.
        name: of the file, for readers.
        day: ``YYYY-MM-DD``, UTC.
    """
    about = [{"digest": {"sha256": hashlib.sha256(data).hexdigest()}, "name": name}]
    found = svr_of(outcome.steps, read_manifest(unpack(data)), day)
    return statement(SVR, found, about, signers=[key])


def _read(path: Path) -> bytes:
    try:
        data = content(path, BUNDLE_LIMIT)
    except OSError as error:
        raise UsageError(
            f"The bundle {path} cannot be read ({error.strerror}).", fix="check the path"
        ) from error
    if data is None:
        raise UsageError(f"{path} is too large to be a bundle.")
    return data


def load_key(path: Path) -> SigningKey:
    """Read an auditor's signing key: PEM, Ed25519, readable by its owner only.

    Raises:
        UsageError: it cannot be read, others may read or write it, or it is another kind of key.
    """
    close_memory()
    try:
        with os.fdopen(open_plain(path, os.O_RDONLY, linked=True), "rb") as file:
            facts = os.fstat(file.fileno())  # of what was opened, not of what the path names later
            data = file.read(_KEY_LIMIT + 1)
    except OSError as error:
        raise UsageError(
            f"The key {path} cannot be read ({error.strerror}).", fix=_MAKE_KEY
        ) from error
    if facts.st_mode & 0o077:
        raise UsageError(
            f"The key {path} is open to others than its owner.",
            why="whoever can read it can sign in the auditor's name",
            fix=f"chmod 600 {path}, and make a new key if anybody could have read it",
        )
    try:
        found = load_pem_private_key(data, password=None)
    except Exception:  # the library's texts may quote the file
        found = None
    if not isinstance(found, Ed25519PrivateKey) or len(data) > _KEY_LIMIT:
        raise UsageError(
            f"{path} is not an unencrypted Ed25519 private key in PEM.", fix=_MAKE_KEY
        ) from None
    return SigningKey.from_seed(found.private_bytes_raw())


def environment() -> dict[str, bytes]:
    """Return ``env/versions.json`` and ``env/sbom.cdx.json`` (CycloneDX 1.5) of what is installed.

    Listed are this program and what it needs at run time, as the installed packages say.
    """
    packages = _needed()
    versions = {
        "machine": platform.machine(),
        "packages": packages,
        "python": platform.python_version(),
        "system": platform.system(),
    }
    return {
        "env/versions.json": canonical(versions),
        "env/sbom.cdx.json": canonical(_bill(packages)),
    }


def _bill(packages: Mapping[str, str]) -> dict[str, Any]:
    def component(name: str, kind: str) -> dict[str, str]:
        purl = f"pkg:pypi/{name}@{packages[name]}"
        entry = {"name": name, "purl": purl, "type": kind, "version": packages[name]}
        return {"bom-ref": purl, **entry}

    return {
        "bomFormat": "CycloneDX",
        "components": [component(n, "library") for n in sorted(packages) if n != _US],
        "metadata": {"component": component(_US, "application")},
        "specVersion": "1.5",
        "version": 1,
    }


def _needed() -> dict[str, str]:
    """Return name -> version of this program and, transitively, of what it needs."""
    found: dict[str, str] = {}
    waiting = [_US]
    while waiting:
        name = _plain(waiting.pop())
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # for another platform, or an option
            continue
        if name in found:
            continue
        found[name] = package.version
        for requirement in package.requires or ():
            wanted, marker = _NAME.match(requirement), requirement.partition(";")[2]
            if wanted and "extra" not in marker:
                waiting.append(wanted.group())
    return found


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def write_new(path: Path, data: bytes) -> Path:
    """Write a new file of evidence and return its path; raises UsageError if that is impossible."""
    try:
        create(path, data)
    except FileExistsError as error:
        raise UsageError(
            f"{path} exists already.",
            why="what was handed on is evidence; it is not overwritten",
            fix="choose another --out, or move it away",
        ) from error
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written ({error.strerror}).", fix="choose another file with --out"
        ) from error
    return path
