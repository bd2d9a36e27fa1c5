"""``manifest.json``: path, size, media type and SHA-256 of every other file of a bundle."""

from __future__ import annotations

import hashlib
import hmac
import io
import re
import stat
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from audits.evidence.run_files import RunView, check_version, fail, json_object, read_json
from crypto.errors import CryptoError
from crypto.signing import canonical, parse
from protocols.errors import EvidenceError
from protocols.versions import BUNDLE

MANIFEST, ATTESTATIONS = "manifest.json", "attestations/"
MANIFEST_LIMIT = 8 << 20  # bytes; a file takes about 150
_MEDIA = {
    ".dsse.json": "application/vnd.dsse.envelope.v1+json",
    ".cdx.json": "application/vnd.cyclonedx+json",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".checkpoint": "text/plain",
    ".csv": "text/csv",
    ".html": "text/html",
    ".md": "text/markdown",
}
NEEDED = (
    "VERIFY.md",
    "accounting.json",
    "checkpoints.json",
    "env/sbom.cdx.json",
    "env/versions.json",
    "keys/trust.json",
    "plan.json",
    "policy.json",
    "report/report.json",
    "roster.json",
)
_KNOWN = {
    *NEEDED,
    "approvals.json",
    "attacks.json",
    "baseline.json",
    "charter.json",
    "metrics.jsonl",
    "rehearsal.json",
    "result.json",
    "waivers.json",
}
_FOLDERS = re.compile(
    r"ledger/[^/]+\.jsonl|heads/[^/]+\.checkpoint|attacks/[^/]+\.json|report/[^/]+\.(html|json|md|csv)|"
    r"attestations/[^/]+\.dsse\.json"
)


@dataclass(frozen=True)
class Listed:
    """One file: its path, SHA-256 (hex), size in bytes and media type."""

    path: str
    sha256: str
    size: int
    type: str


def _listed(path: str, data: bytes) -> Listed:
    kind = next((kind for end, kind in _MEDIA.items() if path.endswith(end)), "")
    if not kind or not (path in _KNOWN or _FOLDERS.fullmatch(path)):
        fail("manifest", "a bundle holds a file that does not belong into one")
    return Listed(path, hashlib.sha256(data).hexdigest(), len(data), kind)


def listing(files: Mapping[str, bytes]) -> tuple[Listed, ...]:
    """Return what a manifest of these files lists; raises EvidenceError as `manifest` does."""
    return tuple(_listed(path, files[path]) for path in sorted(files) if path != MANIFEST)


def manifest(files: Mapping[str, bytes]) -> bytes:
    """Return ``manifest.json`` of a bundle's files, in canonical JSON.

    Raises:
        EvidenceError: at step ``manifest``: a file that does not belong into a bundle.
    """
    return canonical({"files": [asdict(f) for f in listing(files)], "version": BUNDLE.version})


def read_manifest(files: Mapping[str, bytes]) -> tuple[Listed, ...]:
    """Return what the manifest lists, which must be exactly the files that are there.

    Raises:
        OtherEvidence: the bundle is of another version.
        EvidenceError: at step ``manifest``: the manifest is missing or malformed, a file is
            missing, not listed, of another size or digest, or of no kind that bundles hold.
    """
    if MANIFEST not in files:
        fail("manifest", "there is no manifest.json")
    try:
        found = parse(files[MANIFEST], limit=MANIFEST_LIMIT)
    except CryptoError:
        raise EvidenceError("manifest", "manifest.json is not canonical JSON") from None
    check_version(found, BUNDLE, step="manifest", what=MANIFEST, member="version")
    if not isinstance(found, dict) or set(found) != {"files", "version"}:
        fail("manifest", "manifest.json does not hold exactly files and version")
    if not isinstance(found["files"], list):
        fail("manifest", "manifest.json holds no list of files")
    rows = [f for f in found["files"] if isinstance(f, dict) and isinstance(f.get("path"), str)]
    if len(rows) != len(found["files"]):
        fail("manifest", "manifest.json lists something that is no file")
    claimed = {row["path"]: row for row in rows}
    listed = listing(files)
    if missing := sorted(set(map(str, claimed)) - set(files)):
        fail("manifest", f"{len(missing)} files that manifest.json lists are missing")
    for file in listed:
        said = claimed.get(file.path)
        if said is None:
            fail("manifest", f"{file.path} is not listed in manifest.json")
        if not hmac.compare_digest(canonical(said), canonical(asdict(file))):
            fail("manifest", f"{file.path} is not the file that manifest.json lists")
    if found["files"] != [asdict(file) for file in listed]:
        fail("manifest", "manifest.json lists a file twice, or out of order")
    if lacking := sorted(set(NEEDED) - set(files)):
        fail("manifest", f"the bundle lacks {lacking[0]}")
    return listed


def signed(listed: tuple[Listed, ...]) -> tuple[Listed, ...]:
    """Return the files that statements are about: all but the statements themselves."""
    return tuple(file for file in listed if not file.path.startswith(ATTESTATIONS))


# --- The zip of a bundle: the same files always give the same bytes, and no other bytes are read
# ---
#
# Files are stored, not compressed: then nothing can swell when it is read, and the bytes do not
# depend on a compressor's version. What was read is packed again and compared, so that not one byte
# of the archive itself (order, times, attributes, gaps, comments) can be changed unseen.

BUNDLE_LIMIT = 1 << 30  # bytes; checked before anything is read
MAX_FILES = 20_000  # a party has two
PATH = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,99}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say: it says nothing
_UNIX, _MODE = 3, (stat.S_IFREG | 0o600) << 16


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return the zip of these files, by path.

    Raises:
        EvidenceError: at step ``manifest``: more or larger files than a reader accepts, or a path
            that is not one or two plain names.
    """
    if len(files) > MAX_FILES or sum(map(len, files.values())) > BUNDLE_LIMIT:
        fail("manifest", "the run is too large for one bundle")
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(files):
            if not PATH.fullmatch(path):
                fail("manifest", "a file has a path that no bundle holds")
            member = zipfile.ZipInfo(path, _TIME)
            member.create_system, member.external_attr = _UNIX, _MODE
            archive.writestr(member, files[path])
    return raw.getvalue()


def unpack(data: bytes) -> dict[str, bytes]:
    """Return the files of a zip that `pack` made; nothing is written anywhere.

    Raises:
        EvidenceError: at step ``manifest``, for anything that `pack` would not have made.
    """
    if len(data) > BUNDLE_LIMIT:
        fail("manifest", f"the bundle is larger than {BUNDLE_LIMIT} bytes")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            _check(members, len(data))
            files = {member.filename: archive.read(member) for member in members}
    except EvidenceError:
        raise
    except Exception:  # a hostile archive must neither crash a verifier nor pass it
        raise EvidenceError("manifest", "the file is not an intact zip archive") from None
    if not hmac.compare_digest(pack(files), data):
        fail(
            "manifest",
            "the archive is not laid out as bundles are: bytes stand before, between or behind its "
            "files, or their order, times or attributes were changed",
        )
    return files


def _check(members: Sequence[zipfile.ZipInfo], size: int) -> None:
    """Refuse by the directory alone what should not be read at all."""
    if len(members) > MAX_FILES:
        fail("manifest", f"the archive holds more than {MAX_FILES} files")
    names = [member.filename for member in members]
    if len(set(names)) != len(names):
        fail("manifest", "the archive holds two files of one name")
    for member in members:
        if not PATH.fullmatch(member.orig_filename):
            fail("manifest", "the archive holds a path that leads out of it, or is not plain")
        if stat.S_ISLNK(member.external_attr >> 16):
            fail("manifest", "the archive holds a link")
        if member.flag_bits & 1:
            fail("manifest", "the archive holds an encrypted file")
        if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
            fail("manifest", "the archive holds a compressed file; bundles are stored as they are")
    if sum(member.file_size for member in members) > size:
        fail("manifest", "the files of the archive overlap")


# --- A bundle's files as the auditors read a run: nothing is unpacked to a disk ---

DIGESTS_LIMIT = 1 << 17  # bytes; 1000 models of rounds take 81 kB


def digests_text(weights: Mapping[str, str]) -> bytes:
    """Return ``checkpoints.json``: the digests of the models, which stay outside of bundles."""
    return canonical(dict(weights))


def digests_of(data: bytes) -> dict[str, str]:
    """Parse ``checkpoints.json``; raises EvidenceError at step ``files``."""
    found = read_json(data or b"{}", limit=DIGESTS_LIMIT, what="checkpoints.json")
    return {n: str(digest) for n, digest in json_object(found, "checkpoints.json").items()}


def view_of(
    files: Mapping[str, bytes],
    *,
    heads: Mapping[str, str] | None = None,
    expect_plan: str | None = None,
) -> RunView:
    """Return the run that a bundle holds.

    Args:
        files: by path, as ``archive.unpack`` gives them.
        heads: signed heads that other parties hold, by party.
        expect_plan: digest (hex) of the plan that was approved.

    Raises:
        EvidenceError: at step ``files``: ``checkpoints.json`` is no list of digests.
    """
    notes = _folder(files, "heads", ".checkpoint")
    return RunView(
        plan_text=files.get("plan.json", b""),
        policy_text=files.get("policy.json", b""),
        roster_text=files.get("roster.json", b""),
        charter_text=files.get("charter.json", b""),
        approvals_text=files.get("approvals.json", b""),
        result_text=files.get("result.json", b""),
        metrics_text=files.get("metrics.jsonl", b""),
        weights=digests_of(files.get("checkpoints.json", b"")),
        ledgers=_folder(files, "ledger", ".jsonl"),
        checkpoints={party: note.decode("utf-8", "replace") for party, note in notes.items()},
        attacks_text=files.get("attacks.json", b""),
        baseline_text=files.get("baseline.json", b""),
        waivers_text=files.get("waivers.json", b""),
        figures=_folder(files, "attacks", ".json"),
        rehearsal_text=files.get("rehearsal.json", b""),
        reports=_folder(files, "report", ""),
        held_heads=heads,
        expected_plan=expect_plan,
    )


def _folder(files: Mapping[str, bytes], folder: str, end: str) -> dict[str, bytes]:
    start = f"{folder}/"
    return {
        path[len(start) : len(path) - len(end)]: data
        for path, data in files.items()
        if path.startswith(start) and path.endswith(end)
    }
