"""The run folder: what a run leaves behind, and how it is read again.

::

    RUN/  config.yaml  policy.json  plan.json  roster.json  result.json  metrics.jsonl
          ledger/<party>.jsonl  heads/<party>.checkpoint  checkpoints/{final,best}.npz
          checkpoints/round-<n>.npz  (the shared model of each n-th round, with checkpoint_every)
          private/<party>/   (while it runs: locked states, see secure_fgl.store.state_store)
          captured/<party>/  (if the policy captures rounds: locked, see secure_fgl.store.captures)
          models/<party>/    (locked: each client's own, see secure_fgl.store.client_models)
          forgotten/<party>.jsonl    (signed: what a party destroyed, see secure_fgl.store.sides)
          report/{report.html,report.json,report.md}
          report/{inventory.csv,findings.csv,attacks.csv,budget.csv}
          attacks.json  (of audit attack)  attacks/<party>.json  (of audit gather: sites' figures)
          {baseline,waivers,rehearsal}.json  (as audit report took them over)
          bundle.zip    (of audit bundle, unless it was written elsewhere)
          approvals.json  (if the policy names approvers)
          charter.json  checkpoints.json    (of audit gather: what all agreed on, models' digests)

No role's secret lies here (O26). Ledgers are written durably before anything is sent. The folder is
for its owner alone (0700, files 0600), and nothing in it is read or written through a link.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from audits.evidence.run_files import read_result
from protocols.errors import EvidenceError
from protocols.messages import Array
from secure_fgl.errors import UsageError
from secure_fgl.run.model_digest import npz_bytes
from secure_fgl.store.files import Folder, run_name, synced
from secure_fgl.store.finished_run import NOT_JUDGED
from secure_fgl.store.state_store import StateStores


class FileStore:
    """A ledger's lines on disk: appended, flushed to the device before returning.

    Args:
        folder: where it lies.
        name: of the file; it must not exist yet.
        again: it must exist: a killed run goes on with it.
    """

    def __init__(self, folder: Folder, name: str, *, again: bool = False) -> None:
        flags = os.O_WRONLY | os.O_APPEND | (0 if again else os.O_CREAT | os.O_EXCL)
        self._file = folder.open(name, flags)
        self._size = os.fstat(self._file).st_size

    def append(self, lines: bytes) -> None:
        """Write and fsync; on failure the file is cut back to complete entries."""
        try:
            view = memoryview(lines)
            while view:
                view = view[os.write(self._file, view) :]
            synced(self._file)
        except BaseException:  # an interrupt too: only complete writes stay
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(lines)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class RunFolder:
    """Writes a run's files.

    Args:
        path: the folder; it must not exist yet, or be empty.
        again: it must hold a run that was killed.

    Raises:
        UsageError: it is not so.
    """

    def __init__(self, path: Path, *, again: bool = False) -> None:
        self.path, self._folder = path, Folder(path)
        if again:
            self._check_unfinished()
            return
        try:
            plain = path.exists() and not path.is_dir()
            taken = path.is_dir() and any(path.iterdir())
        except OSError as error:
            raise UsageError(
                f"The run folder {path} cannot be looked into ({error.strerror}).",
                fix="choose another --out",
            ) from error
        if plain:
            raise UsageError(
                f"{path} is a file; a run needs a folder of its own.",
                why="a run never overwrites what is there",
                fix="choose another --out",
            )
        if taken:
            raise UsageError(
                f"The run folder {path} exists already and is not empty.",
                why="a run never overwrites another run's evidence",
                fix="choose another --out"
                + (", or --resume: it was killed" if (path / "private").is_dir() else ""),
            )

    def _check_unfinished(self) -> None:
        if not self._folder.holds("roster.json"):
            raise UsageError(
                f"{self.path} holds no run that could go on.",
                why="--resume continues a run that was killed after it had begun",
                fix="give its folder with --out, or leave --resume out",
            )
        # A result without a verdict: killed while it was being looked at, which is done again.
        if self._folder.holds("result.json") and self._judged():
            StateStores(self.roster()["run"], self.path).tidy()
            raise UsageError(
                f"The run in {self.path} was not killed: it finished.",
                fix="start a new run in another folder",
            )

    def _judged(self) -> bool:
        try:
            return read_result(self.bytes("result.json")).get("verdict") != NOT_JUDGED
        except EvidenceError:  # cut short
            return False

    def roster(self) -> dict[str, Any]:
        """Return what ``roster.json`` holds; raises UsageError if it is damaged."""
        try:
            found = json.loads(self.bytes("roster.json"))
            bytes.fromhex(found["nonce"])
            return {"run": run_name(found["run"]), "nonce": str(found["nonce"])}
        except (KeyError, RecursionError, TypeError, ValueError) as error:
            raise UsageError(
                f"The roster in {self.path} cannot be read, so its run cannot go on.",
                why="the file was cut or changed",
                fix="start a new run in another folder",
            ) from error

    def make(self) -> None:
        """Make the folder; raises UsageError if that is not possible."""
        try:
            self._folder.make()
        except OSError as error:
            raise UsageError(
                f"The run folder {self.path} cannot be made ({error.strerror}).",
                fix="choose another --out",
            ) from error

    def text(self, name: str, content: str) -> None:
        """Write a text file, as a whole or not at all."""
        self._folder.write(name, content.encode("utf-8"))

    def document(self, name: str, content: Any) -> None:
        """Write a JSON file."""
        self.text(name, json.dumps(content, indent=2, sort_keys=True) + "\n")

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""
        self._folder.remove(name)

    def line(self, name: str, content: Mapping[str, Any]) -> None:
        """Append one JSON line."""
        self._folder.append(name, json.dumps(content, sort_keys=True).encode() + b"\n")

    def bytes(self, name: str) -> bytes:
        """Return a file's content; empty if there is none."""
        return self._folder.read(name)

    def arrays(self, name: str, arrays: Mapping[str, Array]) -> None:
        """Write arrays as npz (no pickles)."""
        self._folder.write(name, npz_bytes(arrays))

    def ledger(self, party: str, *, again: bool = False) -> FileStore:
        """Return the durable store of a party's ledger, a new one unless `again`."""
        try:
            return FileStore(self._folder, f"ledger/{party}.jsonl", again=again)
        except FileNotFoundError as error:
            raise UsageError(
                f"The ledger of {party} is missing, so this run cannot go on.",
                fix="start a new run in another folder",
            ) from error
