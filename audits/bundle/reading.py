"""A bundle's files as the auditors read a run: nothing is unpacked to a disk."""

from __future__ import annotations

from collections.abc import Mapping

from audits.evidence.run_files import RunView, json_object, read_json
from crypto.signing.canonical import canonical

__all__ = ["DIGESTS_LIMIT", "digests_of", "digests_text", "view_of"]

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
