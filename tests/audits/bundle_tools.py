"""What the tests of bundles share."""

from __future__ import annotations

from collections.abc import Mapping

from audits.bundle.archive import MANIFEST, manifest, pack
from audits.bundle.making import make
from audits.checks.bundle import verify_bundle
from audits.evidence.run_files import RunView
from audits.evidence.steps import Status, Verification
from crypto.signing import SigningKey
from tests.audits.toy_run import Toy, run_toy

ENVIRONMENT = {"env/sbom.cdx.json": b"{}", "env/versions.json": b"{}"}
DAY = "2026-01-02"
AUDITOR = SigningKey.from_seed(bytes(range(32)))
TOY = run_toy()
STATEMENTS = tuple(f"attestations/{n}.dsse.json" for n in ("leakage-audit", "svr", "test-result"))


def made(view: RunView, signer: SigningKey | None = AUDITOR) -> dict[str, bytes]:
    """Return the files of a run's bundle."""
    return make(view, environment=ENVIRONMENT, day=DAY, signer=signer)


FILES = made(TOY.view())
DATA = pack(FILES)
UNSIGNED = made(TOY.view(), signer=None)


def listed(files: Mapping[str, bytes]) -> bytes:
    """Return the archive with a manifest over whatever the files are: a forger does so first."""
    return pack({**files, MANIFEST: manifest(files)})


def changed(files: Mapping[str, bytes], **texts: bytes | None) -> dict[str, bytes]:
    """Return files with some replaced, added or (None) dropped; ``__`` is ``/``, ``_`` a dot."""
    names = {name.replace("__", "/").replace("_", "."): data for name, data in texts.items()}
    found = {**files, **{name: data for name, data in names.items() if data is not None}}
    return {path: data for path, data in found.items() if names.get(path, b"") is not None}


def fails_at(name: str, data: bytes, why: str = "", **brought: object) -> None:
    """Assert that this step fails, and no step before it."""
    found = verify_bundle(data, **brought)  # type: ignore[arg-type]
    assert found.failed is not None, "nothing failed"
    assert found.failed.name == name, found.failed
    assert why in found.failed.detail, found.failed.detail


def status(found: Verification, name: str) -> Status:
    return next(s.status for s in found.steps if s.name == name)


def roster_keys(toy: Toy) -> dict[str, str]:
    return {party["name"]: party["verify"] for party in toy.roster.document()}
