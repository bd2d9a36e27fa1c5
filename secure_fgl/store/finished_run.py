"""A finished run: its result, and what audits read of its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace as with_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audits.evidence.run_files import RunView
from audits.report.learning import chosen_by
from protocols.errors import EvidenceError
from secure_fgl.errors import UsageError, path_of
from secure_fgl.notebook import Results
from secure_fgl.store.captures import found, sweep
from secure_fgl.store.files import FILE_LIMIT, Folder, is_temporary, replace
from secure_fgl.store.sides import party_side
from secure_fgl.store.sides.party_side import charter_of, party_of, run_of, side_of, weights_of

if TYPE_CHECKING:
    import torch

    from audits.evidence.steps import Case, Verification
    from audits.report.models import Report
    from secure_fgl.plugins.in_use import Given
    from secure_fgl.store.client_models import ClientModels, Opened
    from secure_fgl.store.trained_model import TrainedModel

NOT_JUDGED = "not audited"
FORMATS = ("html", "json", "md", "csv")


ENDINGS = {"ledger": ".jsonl", "heads": ".checkpoint", "checkpoints": ".npz"}
"""Folders of the evidence that hold files of one kind, and nothing else."""

VIEW_LIMIT = 2 * FILE_LIMIT  # bytes of a run folder that an audit keeps in memory


class Run(Results):
    """A finished run, read from its folder.

    Args:
        path: the run folder, or a party's folder, whose own side of its run is looked at; raises
            UsageError if it is neither, and EvidenceError at step ``files`` for a party's folder
            whose keys to captures lie behind a link.

    Attributes:
        party: where this is one party's side, the folder of the run at the party; None: the folder
            of a whole run.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self.party = side_of(path_of(path))
        self.folder = Folder(self.path)
        sweep()  # whoever looks at a run ends captures whose days are over
        if self.party is not None:
            home = party_of(self.party)
            # The folder may be a stranger's: a link in it would lead to folders of whoever looks.
            Folder(home).folders("keys/captures")
            sweep(home / "keys" / "captures")
        if not self.folder.holds("plan.json"):
            raise UsageError(
                f"{self.path} is not a run folder: it holds no plan.json.",
                fix="give the folder that 'secure-fgl run' printed",
            )

    def _content(self, name: str) -> bytes:
        return self.folder.read(name)

    def leakage(self) -> Report:
        """Return the leakage report as data; raises EvidenceError if documents cannot be read."""
        from audits.report.build import build_report

        return build_report(self.view())

    def view(
        self, *, heads: Mapping[str, str] | None = None, expect_plan: str | None = None
    ) -> RunView:
        """Read the folder for the auditors.

        Args:
            heads: checkpoints that other parties hold, by party name.
            expect_plan: the digest of the plan that was approved.
        """
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

        ledgers, agreed = all_of("ledger", ".jsonl"), charter_of(self.folder, self.party)
        notes = all_of("forgotten", ".jsonl")
        return RunView(
            charter_text=agreed,
            approvals_text=read("approvals.json"),
            side=min(ledgers or notes, default="nobody") if self.party is not None else "",
            plan_text=read("plan.json"),
            config_text=read("config.yaml"),
            policy_text=read("policy.json"),
            roster_text=read("roster.json"),
            result_text=read("result.json"),
            metrics_text=read("metrics.jsonl"),
            weights=weights_of(self.folder, gathered=bool(agreed) and self.party is None),
            ledgers=ledgers,
            checkpoints={
                party: note.decode("utf-8", "replace")
                for party, note in all_of("heads", ".checkpoint").items()
            },
            attacks_text=read("attacks.json"),
            baseline_text=read("baseline.json"),
            waivers_text=read("waivers.json"),
            rehearsal_text=read("rehearsal.json"),
            figures=all_of("attacks", ".json"),
            reports=all_of("report"),
            strays=tuple(folder for folder, end in ENDINGS.items() if self._strays(folder, end)),
            budgets=all_of("budgets", ".checkpoint"),
            captured=lambda: found(self.folder),
            forgotten=notes,
            models=lambda: party_side.locked_models(self.folder),
            held_heads=heads,
            expected_plan=expect_plan,
        )

    def _strays(self, folder: str, ending: str) -> bool:
        """Tell whether a folder holds more than files of its kind, and what a kill may leave."""
        files = self.folder.names(folder)
        others = [name for name in files if not name.endswith(ending) and not is_temporary(name)]
        return bool(others or self.folder.folders(folder))

    def trained(self, site: str | None = None, *, folder: bool = False) -> TrainedModel:
        """Return a model with what its users must know; see :meth:`model`.

        With `folder` the name can only be that of a site's folder, not of a client in the plan.
        """
        from secure_fgl.store import client_models, trained_model  # torch: most commands need none
        from secure_fgl.store.sides.release import check_released

        check_released(self)
        name, checkpoint = self.checkpoint()
        if site is None:
            models = self.client_models
            found = trained_model.shared(
                self.view(), name, checkpoint, lambda: client_models.agreed(models, checkpoint)
            )
        else:
            found = trained_model.of_client(self._opened(site, folder=folder))
        return with_(
            found, facts={**found.facts, "run": self.name, "chosen": chosen_by(self.result)}
        )

    def about(self, site: str) -> Mapping[str, Any]:
        """Return what the site of a folder's name told of itself beside its client's model."""
        return self._opened(site, folder=True).about

    def _opened(self, site: str, *, folder: bool) -> Opened:
        from secure_fgl.store import client_models

        return client_models.of_site(self.client_models, site, self.checkpoint()[1], folder=folder)

    def checkpoint(self) -> tuple[str, bytes]:
        """Return name and bytes of the shared model's file, empty if there is none."""
        name = "best" if self.folder.holds("checkpoints/best.npz") else "final"
        return name, self.folder.read(f"checkpoints/{name}.npz")

    @property
    def delivered_sha256(self) -> str | None:
        """Digest of the shared model of the best round, which `model` and ``model export`` take.

        Where nothing was scored it is that of the last round, `model_sha256`; None where clients
        share no model.
        """
        from secure_fgl.run.model_digest import npz_digest

        _, content = self.checkpoint()
        return npz_digest(content) if content else self.model_sha256

    @property
    def name(self) -> str:
        """The run's name, as its roster says."""
        return run_of(self.folder.read("roster.json"))

    @property
    def keys(self) -> Path | None:
        """Where one party's own keys lie; None: in the user's folder."""
        home = party_of(self.party) if self.party is not None else None
        return home / "keys" if home is not None and (home / "identity.json").is_file() else None

    @property
    def client_models(self) -> ClientModels:
        """Clients' own models; they open where their keys are, see `keys`."""
        from secure_fgl.store.client_models import ClientModels

        return ClientModels(self.name, self.path, self.keys)

    def model(self, site: str | None = None, *, plugins: Sequence[Given] = ()) -> torch.nn.Module:
        """Return a model as a module to use outside: of PyTorch Geometric's layers, or of ratings.

        It takes ``(x, edge_index)``, for graphs ``(x, edge_index, batch)``, and returns logits;
        features are scaled as the run's were (`data.features`), edges stand in both directions.
        For ratings it takes ``(user, item, edge_index, rating)`` and returns ratings.

        Args:
            site: of whom; None for the model that all share. A client's own model opens only in a
                process that has its site's key.
            plugins: files, or names of installed ones, that the run was made with: nothing runs a
                plug-in because a run names it.

        Raises:
            EvidenceError: of the shared model: the evidence is broken.
            PlanDrift: a plug-in is another one than the plan's.
            UsageError: there is no such model, it does not open here, or the policy holds it back.
        """
        with self.given(plugins):
            return self.trained(site).module

    @contextmanager
    def given(self, plugins: Sequence[Given]) -> Iterator[None]:
        """Let the run's plug-ins be found by name, where somebody gives their files; see `model`.

        Raises:
            PlanDrift: what is given is not what the plan names, by name and digest.
            UsageError: a file cannot be used, or the folder holds no plan.
        """
        if not plugins:
            yield
            return
        from audits.evidence.steps import Case
        from secure_fgl.plugins.in_use import Plugins

        found = Plugins((), plugins)
        found.hold_to(Case(self.view()).plan)
        with found.in_use():
            yield

    def report(
        self,
        formats: str | Sequence[str] = FORMATS,
        out: str | Path | None = None,
        *,
        after: Case | None = None,
    ) -> list[Path]:
        """Render the leakage report and return the files written.

        Args:
            formats: of html, json, md, csv; one name, or several.
            out: folder; by default ``report/`` in the run folder.
            after: an earlier look at the run; files that did not change are not read twice.

        Raises:
            EvidenceError: the run's documents cannot be read.
            UsageError: an unknown format, or the files cannot be written.
        """
        from audits.evidence.steps import Case
        from audits.formats import render
        from audits.report.build import report_of
        from protocols.strict import nearest

        wanted = (formats,) if isinstance(formats, str) else tuple(formats)
        for name in wanted:
            if name not in FORMATS:
                raise UsageError(
                    f"There is no report format {name!r}.", fix=nearest(name, list(FORMATS))
                )
        view = self.view()
        case = Case(view) if after is None else after.with_files(view)
        files = render(report_of(case), wanted)
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
        from audits.evidence.verify import verify

        return verify(self.view(heads=heads, expect_plan=expect_plan))
