"""``manifest.json``: path, size, media type and SHA-256 of every other file of a bundle."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from audits.evidence.run_files import check_version, fail
from crypto.errors import CryptoError
from crypto.signing.canonical import canonical, parse
from protocols.errors import EvidenceError
from protocols.versions import BUNDLE

__all__ = ["ATTESTATIONS", "MANIFEST", "Listed", "manifest", "read_manifest", "signed"]

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
