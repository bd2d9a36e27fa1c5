"""Each candidate is trained and attacked once; what was found is a line of a file, and stays.

Attacks judge as ever: by controls, and with chance from the ledgers of the run that they look at.
A trial's run lies in a folder of its own and is deleted, with its keys, once it was attacked. What
noise it spends is taken from a store of its own: a trial releases nothing to anybody.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from audits.attacks import attack, code_digest, heads_digest
from audits.attacks._shared.models import AttackRow
from audits.evidence.steps import Case
from protocols.errors import SecureFglError
from protocols.strict import Strict
from secure_fgl.advising.candidates import Candidate, same_training
from secure_fgl.advising.scores import scores
from secure_fgl.attack_inputs.materials import material
from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.past_runs import delete
from secure_fgl.plugins.in_use import Given
from secure_fgl.store.append_only import append
from secure_fgl.store.files import content
from secure_fgl.store.finished_run import Run

__all__ = ["Trial", "Trials", "worst"]

_FILE = "trials.jsonl"
_LARGEST = 1 << 24  # bytes of all trials
_GRAVITY = (
    *("FAIL", "ABOVE_PRIOR", "ERROR", "INVALID", "INCONCLUSIVE", "NOT_TESTED"),
    *("PASS", "NOT_APPLICABLE"),
)
How = Literal["trained", "replayed", "not tried"]


class Trial(Strict):
    """What came of one candidate.

    Attributes:
        of: SHA-256 (hex) over the heads of the run that advice is asked for.
        settings: SHA-256 (hex) over configuration and policy of the candidate.
        name, change: of the candidate.
        how: ``replayed``: the run's own captures were attacked, and its scores are quoted.
        why_not: why it was not tried; empty if it was.
        metric: which score; empty where there is none.
        validation, test: of the model of the best validation round, or as the audit scored the
            final one; None where there is none.
        rows: of the attacks, those that measured something or could not.
    """

    of: str
    settings: str
    name: str
    change: str
    how: How
    why_not: str = ""
    metric: str = ""
    validation: float | None = None
    test: float | None = None
    rows: tuple[AttackRow, ...] = ()

    @property
    def verdict(self) -> str:
        """The gravest verdict; empty where nothing was attacked."""
        found = [row.verdict for row in self.rows]
        return min(found, key=_GRAVITY.index) if found else ""


def worst(trial: Trial) -> AttackRow | None:
    """Return the row that is furthest above an attacker without the message; None without one."""
    measured = [row for row in trial.rows if row.gap is not None]
    return max(measured, key=lambda row: float(row.gap.value) if row.gap else 0.0, default=None)


@dataclass(frozen=True)
class Trials:
    """Tries candidates.

    Attributes:
        run, case: for which advice is asked; the evidence was verified.
        config: its configuration, with paths of this machine.
        data, plugins: the auditor's own.
        attacks: ids of the attacks.
        folder: where trials and their runs lie.
    """

    run: Run
    case: Case
    config: Config
    data: Path | None
    plugins: Sequence[Given]
    attacks: Sequence[str]
    folder: Path

    def all(self, candidates: Sequence[Candidate], tell: Callable[[str], None]) -> Iterator[Trial]:
        """Yield a trial for each candidate; those that the folder holds are not made again.

        Raises:
            UsageError: the folder holds trials of another run, or what is none.
            OSError: it cannot be written to.
            EvidenceError: the run's own captures are broken.
            ValueError: no such attack.
        """
        known = self._known()
        append(str(self.folder / _FILE), b"")  # from now on what lies beside it is of trials
        for one in candidates:
            place = self._settings(one)
            if place in known:
                yield known[place].model_copy(update={"name": one.name, "change": one.change})
                continue
            tell(f"{one.name}: {one.change}")
            made = self._tried(one, place)
            append(str(self.folder / _FILE), made.model_dump_json().encode() + b"\n")
            yield made

    def _tried(self, one: Candidate, place: str) -> Trial:
        facts: dict[str, Any] = {"of": self._of, "settings": place, "name": one.name}
        facts["change"] = one.change
        if one.config is None or one.policy is None:
            return Trial(**facts, how="not tried", why_not=one.why_not)
        if self.case.policy.capture is not None and same_training(self.case, self.config, one):
            return self._measured(self.run, facts, "replayed")
        out = self.folder / "run"
        _removed(out)  # of a trial that was killed
        budget = one.config.budget.model_copy(update={"store": str(self.folder / "budgets")})
        config = one.config.model_copy(update={"budget": budget, "resume": False})
        try:
            try:
                federation = Federation(config=config, policy=one.policy, plugins=self.plugins)
                run = federation.run(out)
            except SecureFglError as error:  # what a policy refuses is an answer
                return Trial(**facts, how="not tried", why_not=_said(error))
            return self._measured(run, facts, "trained")
        finally:  # an interrupt, too, leaves no captures with their keys
            _removed(out)
            shutil.rmtree(self.folder / "budgets", ignore_errors=True)

    def _measured(self, run: Run, facts: dict[str, Any], how: How) -> Trial:
        given = material(run, profile="quick", data=self.data, plugins=self.plugins)
        found = attack(given, self.attacks, profile="quick")
        asked = {row.id for row in found.rows if row.reason != "it was not asked for"}
        rows = [r for r in found.rows if r.id in asked and r.verdict != "NOT_APPLICABLE"]
        told = scores(run, self.data, self.plugins)
        metric = next((n.removeprefix("val_") for n in told if n.startswith("val_")), "")
        return Trial(
            **facts,
            how=how,
            metric=metric,
            validation=told.get(f"val_{metric}"),
            test=told.get(f"test_{metric}"),
            rows=tuple(rows),
        )

    @property
    def _of(self) -> str:
        return heads_digest(self.case.ledger_index)

    def _settings(self, one: Candidate) -> str:
        """Return a digest of what a trial follows from: settings, attacks and their code."""
        config = "" if one.config is None else one.config.text()
        policy = "" if one.policy is None else one.policy.digest
        parts = [config, policy, one.why_not, *self.attacks, code_digest()]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _known(self) -> dict[str, Trial]:
        file = self.folder / _FILE
        if not file.exists():
            if any(self.folder.iterdir()):  # trials delete runs and budgets that lie here
                raise UsageError(
                    f"{self.folder} holds something, and no trials.",
                    why="what trials leave there is deleted, and this may be yours",
                    fix="name a new or an empty folder with --out",
                )
            return {}
        data = content(file, _LARGEST)
        try:
            lines = [] if data is None else data.decode("utf-8").splitlines()
            found = [Trial.model_validate_json(line) for line in lines]
        except (ValidationError, UnicodeDecodeError):
            found, data = [], None
        if data is None or any(trial.of != self._of for trial in found):
            raise UsageError(
                f"{file} holds no trials of this run.",
                why="it is of another run or another program, or was cut or edited",
                fix="name another folder with --out",
            )
        return {trial.settings: trial for trial in found}


def _removed(out: Path) -> None:
    """Delete a trial's run and its keys; of one that did not come that far, its folder.

    Raises:
        SecureFglError: a run that may have keys cannot be deleted; see `delete`.
    """
    if not out.exists():
        return
    try:
        delete(out, unfinished=True)
    except SecureFglError:
        if all((out / name).exists() for name in ("plan.json", "roster.json")):
            raise  # without its folder nobody would find the keys any more
        shutil.rmtree(out)


def _said(error: SecureFglError) -> str:
    return ": ".join(filter(None, (error.what, error.why)))[:600]
