"""The run folder: what a run leaves behind, and how it is read again.

::

    RUN/  config.yaml  policy.json  plan.json  roster.json  result.json  metrics.jsonl
          ledger/<party>.jsonl  heads/<party>.checkpoint  checkpoints/{final,best}.npz
          private/<party>/   (while it runs: locked states, see secure_fgl.store.state_store)
          captured/<party>/  (if the policy captures rounds: locked, see secure_fgl.store.captures)
          report/{report.html,report.json,report.md,inventory.csv,findings.csv,attacks.csv}
          attacks.json  (of audit attack)  {baseline,waivers}.json  (as audit report took them over)
          bundle.zip    (of audit bundle, unless it was written elsewhere)

No role's secret lies here (O26). Ledgers are written durably before anything is sent. The folder is
for its owner alone (0700, files 0600), and nothing in it is read or written through a link.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from audits.evidence.run_files import RunView, json_object, read_result
from audits.evidence.verify import Verification, verify
from audits.formats import render
from audits.report.build import build_report
from protocols.errors import EvidenceError
from protocols.messages import Array
from secure_fgl import _floors
from secure_fgl.errors import UsageError
from secure_fgl.run.model_digest import npz_bytes, npz_digest
from secure_fgl.store.captures import sweep
from secure_fgl.store.files import FILE_LIMIT, Folder, replace, run_name
from secure_fgl.store.state_store import StateStores

NOT_JUDGED = "not audited"
FORMATS = ("html", "json", "md", "csv")
VIEW_LIMIT = 2 * FILE_LIMIT  # bytes of a run folder that an audit keeps in memory


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
            os.fsync(self._file)
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


class Run:
    """A finished run, read from its folder.

    Args:
        path: the run folder; raises UsageError if it is none.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.folder = Folder(self.path)
        sweep()  # whoever looks at a run ends captures whose days are over
        if not self.folder.holds("plan.json"):
            raise UsageError(
                f"{self.path} is not a run folder: it holds no plan.json.",
                fix="give the folder that 'secure-fgl run' printed",
            )

    @property
    def result(self) -> dict[str, Any]:
        """What ``secure-fgl run --format json`` printed; empty if the run did not finish.

        Raises EvidenceError for a file that is not exactly one JSON object.
        """
        return read_result(self.folder.read("result.json"))

    @property
    def metrics(self) -> dict[str, Any]:
        """Cohort metrics at the best validation round."""
        return json_object(self.result.get("metrics", {}), "the metrics of result.json")

    @property
    def model_sha256(self) -> str | None:
        """Digest of the aggregator's public state after the last round."""
        return self.result.get("model_sha256")

    def view(
        self, *, heads: Mapping[str, str] | None = None, expect_plan: str | None = None
    ) -> RunView:
        """Read the folder for the auditors.

        Args:
            heads: checkpoints that other parties hold, by party name.
            expect_plan: the digest of the plan that was approved.

        Raises:
            NotOurCode: what would audit it is not ours.
        """
        _floors.check()  # every audit begins here
        names, left = self.folder.names, VIEW_LIMIT

        def read(name: str) -> bytes:
            nonlocal left
            data = self.folder.read(name, min(left, FILE_LIMIT))
            left -= len(data)
            return data

        def all_of(folder: str, suffix: str = "") -> dict[str, bytes]:
            return {
                name.removesuffix(suffix): read(f"{folder}/{name}")
                for name in names(folder, suffix)
            }

        return RunView(
            plan_text=read("plan.json"),
            config_text=read("config.yaml"),
            policy_text=read("policy.json"),
            roster_text=read("roster.json"),
            result_text=read("result.json"),
            metrics_text=read("metrics.jsonl"),
            weights={
                name.removesuffix(".npz"): npz_digest(self.folder.read(f"checkpoints/{name}"))
                for name in names("checkpoints", ".npz")
            },
            ledgers=all_of("ledger", ".jsonl"),
            checkpoints={
                party: note.decode("utf-8", "replace")
                for party, note in all_of("heads", ".checkpoint").items()
            },
            attacks_text=read("attacks.json"),
            baseline_text=read("baseline.json"),
            waivers_text=read("waivers.json"),
            reports=all_of("report"),
            held_heads=heads,
            expected_plan=expect_plan,
        )

    def report(self, formats: Sequence[str] = FORMATS, out: str | Path | None = None) -> list[Path]:
        """Render the leakage report and return the files written.

        Args:
            formats: of html, json, md, csv.
            out: folder; by default ``report/`` in the run folder.

        Raises:
            EvidenceError: the run's documents cannot be read.
            UsageError: the files cannot be written.
        """
        files = render(build_report(self.view()), formats)
        return self.write_report(files, Path(out) if out is not None else None)

    def write_report(self, files: Mapping[str, bytes], out: Path | None = None) -> list[Path]:
        """Write a report's files and return their paths.

        Args:
            files: by name.
            out: a folder of the reader's; by default ``report/`` in the run folder.

        Raises:
            UsageError: the files cannot be written.
        """
        folder = self.path / "report" if out is None else out
        try:
            for name, content in files.items():
                if out is None:
                    self.folder.write(f"report/{name}", content)
                else:
                    replace(out / name, content)
        except OSError as error:
            raise UsageError(
                f"The report cannot be written to {folder} ({error.strerror}).",
                fix="choose another folder with --out",
            ) from error
        return [folder / name for name in files]

    def keep(self, name: str, content: bytes) -> None:
        """Write a file of an audit beside the evidence, or remove it if `content` is empty.

        Raises:
            UsageError: that is impossible.
        """
        try:
            if content:
                self.folder.write(name, content)
            else:
                self.folder.remove(name)
        except OSError as error:
            raise UsageError(
                f"{name} cannot be written to {self.path} ({error.strerror}).",
                fix="audit a copy of the run folder that can be written",
            ) from error

    def check_report(self) -> None:
        """Raise EvidenceError unless there is no report, or it is what the run's files give.

        It names the first step that failed: a report does not fit a record that broke since.
        """
        if not self.folder.names("report"):
            return
        outcome = self.verify()
        step = next(step for step in outcome.steps if step.name == "report")
        if step.status != "OK":
            first = outcome.failed or step
            left = "it" if first is step else "the report, which does not follow from that,"
            raise EvidenceError(first.name, f"{first.detail}; {left} was left as it is (see --out)")

    def verify(
        self, *, heads: Mapping[str, str] | None = None, expect_plan: str | None = None
    ) -> Verification:
        """Check the evidence; see :meth:`view` for the arguments."""
        return verify(self.view(heads=heads, expect_plan=expect_plan))
