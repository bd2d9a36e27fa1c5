"""The run folder: what a run leaves behind, and how it is read again.

::

    RUN/  config.yaml  policy.json  plan.json  roster.json  result.json  metrics.jsonl
          ledger/<party>.jsonl  heads/<party>.checkpoint  checkpoints/{final,best}.npz
          private/<party>/   (while it runs: locked states, see secure_fgl.safes)
          captured/<party>/  (if the policy captures rounds: locked, see secure_fgl.captures)
          report/{report.html,report.json,report.md,inventory.csv,findings.csv,attacks.csv}
          attacks.json  (of audit attack)  {baseline,waivers}.json  (as audit report took them over)
          bundle.zip    (of audit bundle, unless it was written elsewhere)

No role's secret lies here (O26). Ledgers are written durably before anything is sent.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from audits.formats import render
from audits.report import build_report
from audits.verify import Verification, verify
from audits.view import UNREADABLE, RunView, json_object, read_result
from protocols.errors import EvidenceError
from protocols.messages import Array
from secure_fgl import _floors
from secure_fgl.captures import sweep
from secure_fgl.errors import UsageError
from secure_fgl.safes import Safes
from secure_fgl.weights import weights_digest

NOT_JUDGED = "not audited"
FORMATS = ("html", "json", "md", "csv")
FILE_LIMIT = 1 << 30  # bytes; larger files in a run folder are refused, not read


class FileStore:
    """A ledger's lines on disk: appended, flushed to the device before returning.

    Args:
        path: of the file; it must not exist yet.
        again: it must exist: a killed run goes on with it.
    """

    def __init__(self, path: Path, *, again: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | (0 if again else os.O_CREAT | os.O_EXCL)
        self._file = os.open(path, flags, 0o600)
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
        self.path = path
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
        if not (self.path / "roster.json").is_file():
            raise UsageError(
                f"{self.path} holds no run that could go on.",
                why="--resume continues a run that was killed after it had begun",
                fix="give its folder with --out, or leave --resume out",
            )
        # A result without a verdict: killed while it was being looked at, which is done again.
        if (self.path / "result.json").is_file() and self._judged():
            Safes(self.roster()["run"], self.path).destroy()  # if a kill left something
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
            return {"run": str(found["run"]), "nonce": str(found["nonce"])}
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"The roster in {self.path} cannot be read, so its run cannot go on.",
                why="the file was cut or changed",
                fix="start a new run in another folder",
            ) from error

    def make(self) -> None:
        """Make the folder; raises UsageError if that is not possible."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"The run folder {self.path} cannot be made ({error.strerror}).",
                fix="choose another --out",
            ) from error

    def text(self, name: str, content: str) -> None:
        """Write a text file, as a whole or not at all."""
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path / f"{name}.new"
        fresh.write_text(content, "utf-8")
        fresh.replace(self.path / name)

    def document(self, name: str, content: Any) -> None:
        """Write a JSON file."""
        self.text(name, json.dumps(content, indent=2, sort_keys=True) + "\n")

    def line(self, name: str, content: Mapping[str, Any]) -> None:
        """Append one JSON line."""
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(content, sort_keys=True) + "\n")

    def bytes(self, name: str) -> bytes:
        """Return a file's content; empty if there is none."""
        return _read(self.path / name)

    def arrays(self, name: str, arrays: Mapping[str, Array]) -> None:
        """Write arrays as npz (no pickles)."""
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        np.savez(self.path / name, allow_pickle=False, **arrays)

    def ledger(self, party: str, *, again: bool = False) -> FileStore:
        """Return the durable store of a party's ledger, a new one unless `again`."""
        try:
            return FileStore(self.path / "ledger" / f"{party}.jsonl", again=again)
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
        sweep()  # whoever looks at a run ends captures whose days are over
        if not (self.path / "plan.json").is_file():
            raise UsageError(
                f"{self.path} is not a run folder: it holds no plan.json.",
                fix="give the folder that 'secure-fgl run' printed",
            )

    @property
    def result(self) -> dict[str, Any]:
        """What ``secure-fgl run --format json`` printed; empty if the run did not finish.

        Raises EvidenceError for a file that is not exactly one JSON object.
        """
        return read_result(_read(self.path / "result.json"))

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
        return RunView(
            plan_text=_read(self.path / "plan.json"),
            policy_text=_read(self.path / "policy.json"),
            roster_text=_read(self.path / "roster.json"),
            result_text=_read(self.path / "result.json"),
            metrics_text=_read(self.path / "metrics.jsonl"),
            weights={f.stem: _weights(f) for f in _files(self.path / "checkpoints", ".npz")},
            ledgers={f.stem: _read(f) for f in _files(self.path / "ledger", ".jsonl")},
            checkpoints={
                f.stem: _read(f).decode("utf-8", "replace")
                for f in _files(self.path / "heads", ".checkpoint")
            },
            attacks_text=_read(self.path / "attacks.json"),
            baseline_text=_read(self.path / "baseline.json"),
            waivers_text=_read(self.path / "waivers.json"),
            reports={f.name: _read(f) for f in _files(self.path / "report", "")},
            held_heads=heads,
            expected_plan=expect_plan,
        )

    def report(self, formats: Sequence[str] = FORMATS, out: str | Path | None = None) -> list[Path]:
        """Render the leakage report and return the files written.

        Args:
            formats: of html, json, md, csv.
            out: folder; by default ``report/`` in the run folder.

        Raises:
            EvidenceError: the run's papers cannot be read.
            UsageError: the files cannot be written.
        """
        files = render(build_report(self.view()), formats)
        folder = Path(out) if out is not None else self.path / "report"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                (folder / name).write_bytes(content)
        except OSError as error:
            raise UsageError(
                f"The report cannot be written to {folder} ({error.strerror}).",
                fix="choose another folder with --out",
            ) from error
        return [folder / name for name in files]

    def keep(self, name: str, content: str) -> None:
        """Write a file of an audit beside the evidence; raises UsageError if that is impossible."""
        fresh = self.path / f"{name}.new"
        try:
            fresh.write_text(content, "utf-8")
            fresh.replace(self.path / name)
        except OSError as error:
            raise UsageError(
                f"{name} cannot be written to {self.path} ({error.strerror}).",
                fix="audit a copy of the run folder that can be written",
            ) from error

    def check_report(self) -> None:
        """Raise EvidenceError unless there is no report, or it is what the run's files give.

        It names the first step that failed: a report does not fit a record that broke since.
        """
        if not _files(self.path / "report", ""):
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


def _read(path: Path) -> bytes:
    if not path.is_file():
        return b""
    if path.stat().st_size > FILE_LIMIT:
        raise UsageError(f"{path} is too large to be one of our files.")
    return path.read_bytes()


def _files(folder: Path, suffix: str) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(f for f in folder.iterdir() if f.is_file() and f.name.endswith(suffix))


def _weights(path: Path) -> str:
    """Return the digest of a model's arrays; UNREADABLE for anything that we would not write."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
        names = {member.filename for member in members}
        plain = all(name.endswith(".npy") and name[:-4].isidentifier() for name in names)
        large = sum(member.file_size for member in members) > FILE_LIMIT
        if not plain or large or len(names) != len(members):
            return UNREADABLE
        with np.load(path, allow_pickle=False) as file:
            return weights_digest({name: file[name] for name in file.files})
    except Exception:  # a hostile archive must neither crash an audit nor pass it
        return UNREADABLE
