"""A rehearsal: a plan played where one site's data lie, attacked, and thrown away.

What was captured lies in a temporary folder for its owner alone (0700), locked, and so do the keys
to it. Both are removed when the rehearsal ends: after its attacks, on an error, on Ctrl-C, SIGTERM
and SIGHUP; keys first. Only a process that is killed outright (SIGKILL, a power cut) leaves the
folder behind. No budget is taken from, and no key of another run is touched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from audits.attacks import Profile, attack
from audits.elsewhere.rehearsal import Rehearsal
from protocols.errors import PolicyError
from protocols.plan.plan import Plan
from protocols.policy.policy import Capture, PrivacyPolicy
from secure_fgl.attack_inputs.materials import material
from secure_fgl.config import OWN, BudgetConfig, Config, TransportConfig
from secure_fgl.data.loading import here_of
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.plugins.in_use import Given
from secure_fgl.run.driver import one_thread_and_deterministic
from secure_fgl.run.simulation import Progress
from secure_fgl.sites.surroundings import as_interrupts
from secure_fgl.store.finished_run import Run
from secure_fgl.store.run_folder import RunFolder
from secure_fgl.store.state_store import VARIABLE

__all__ = ["nowhere", "rehearse"]

_ONE_PROCESS = (
    "All parties were one process on one machine: nothing is shown of networks, of other "
    "organisations' machines, or of people."
)
_DRAWN = (
    "The others' data are not here. Theirs were drawn from this site's own statistics, so what "
    "rests on how clients differ, on records that two of them hold, or on what their columns have "
    "in common may come out otherwise in the run."
)
_PUBLIC = "The data are those that the configuration names, shared out as it says."
_SEEDS = (
    "It is another run than the one that it is for: other keys, masks, noise and drop-outs. Its "
    "verdicts are no verdicts on that one."
)
_UNSIGNED = (
    "No party signed it. Made-up figures that agree with each other are found only by who "
    "rehearses again."
)


def rehearse(
    config: Config,
    *,
    data: Path | None = None,
    plugins: Sequence[Given] = (),
    profile: Profile = "quick",
    progress: Progress | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Rehearsal:
    """Play a plan on what is here, capture everything, attack it, and throw the captures away.

    Args:
        config: of the run to come. Of own data one site's folder is enough: the clients whose
            folders are not here are drawn (`secure_fgl.data.stand_ins`).
        data: the data folder, in place of the configuration's.
        plugins: beside those that the configuration names.
        profile: of the attacks.
        progress: called after each round.
        tell: called with a line for people before each part.

    Raises:
        UsageError: the data cannot be used, or a plug-in is to be isolated.
        PolicyError: the policy cannot keep what was sent, or does not admit the algorithm.
    """
    if data is not None:
        named = config.data.model_copy(update={"root": str(data)})
        config = config.model_copy(update={"data": named})
    given = tuple(dict.fromkeys([*config.plugins, *plugins]))
    if given and config.isolate is not False:
        raise UsageError(
            "A rehearsal does not isolate answers, and a plug-in's are isolated by default.",
            why="the others' data are drawn in the process that would have to be kept from them",
            fix="read the plug-in, and rehearse with --set isolate=false",
        )
    wanted = Federation(config=config, plugins=plugins)
    plan = wanted.plan()
    policy = _capturing(wanted.policy)
    here, stand_ins = _who(config, plan)
    with as_interrupts(), nowhere() as place, one_thread_and_deterministic():
        again = Federation(config=_alone(config, place), policy=policy, plugins=plugins)
        prepared = again.prepare()
        tell(_told(here, stand_ins))
        prepared.load(stand_ins=bool(stand_ins))
        run = Run(prepared.train(RunFolder(place / "run"), progress).path)
        tell("The attacks run on what was captured.")
        root = Path(config.data.root) if config.data.root is not None else None
        found = material(run, profile=profile, data=root, plugins=given, stand_ins=bool(stand_ins))
        report = attack(found, profile=profile)
    return Rehearsal(
        plan_digest=plan.digest,
        played_digest=prepared.plan.digest,
        differs=tuple(wanted.policy.diff(policy)),
        here=here,
        stand_ins=stand_ins,
        cannot=(_DRAWN if stand_ins else _PUBLIC, _ONE_PROCESS, _SEEDS, _UNSIGNED),
        attacks=report,
    )


def _capturing(policy: PrivacyPolicy) -> PrivacyPolicy:
    """Return the policy with every round captured, and without what waits for people."""
    capture = Capture(rounds="all", days=1).model_dump(mode="json")
    try:
        return policy.changed(capture=capture, approvals={}, release=None)
    except PolicyError as error:
        raise PolicyError(
            f"Under the policy {policy.name!r} nothing can be captured, in a rehearsal either.",
            why=error.why,
            fix="attacks that need no capture run on the run itself: secure-fgl audit attack RUN",
        ) from error


def _alone(config: Config, place: Path) -> Config:
    """Return the configuration of a run that leaves nothing outside `place`."""
    scored = config.evaluation.model_copy(update={"references": ()})
    return config.model_copy(
        update={
            "budget": BudgetConfig(store=str(place / "budgets")),
            "transport": TransportConfig(workers=config.transport.workers),
            "evaluation": scored,
            "resume": False,
            "isolate": False,
        }
    )


def _who(config: Config, plan: Plan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which clients are played on data that are here, and which are drawn."""
    if config.data.name != OWN:
        return plan.clients, ()
    here = here_of(config)
    if not config.data.partition.names:
        here = plan.clients[: len(here)]
    return here, tuple(client for client in plan.clients if client not in here)


def _told(here: Sequence[str], stand_ins: Sequence[str]) -> str:
    drawn = f", {len(stand_ins)} are drawn from what they look like" if stand_ins else ""
    return f"REHEARSAL: {len(here)} clients are played on data that are here{drawn}."


@contextlib.contextmanager
def nowhere() -> Iterator[Path]:
    """Give a folder for one's owner alone, and remove it with all that lies in it, keys first.

    While it is there, all keys of this process go there.

    Raises:
        UsageError: it cannot be made, or something of it is still there afterwards.
    """
    try:
        place = Path(tempfile.mkdtemp(prefix="secure-fgl-rehearsal-"))  # 0700
    except OSError as error:
        raise UsageError(
            f"No temporary folder can be made ({error.strerror}).", fix="set TMPDIR"
        ) from error
    before, keys = os.environ.get(VARIABLE), place / "keys"
    os.environ[VARIABLE] = str(keys)
    try:
        yield place
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before
        for folder in (keys, place):
            shutil.rmtree(folder, ignore_errors=True)
        if place.exists():
            raise UsageError(
                f"What was rehearsed could not be removed: {place}", fix="remove the folder by hand"
            )
