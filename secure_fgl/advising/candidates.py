"""What is tried in place of a run's settings: one change each, named; or what a file lists.

Nothing of the data is changed: the sites are those of the run, so what would need more sites than
there are is listed with the number that is missing, and not tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from audits.attacks._shared.payloads import item_rows
from audits.evidence.steps import Case
from protocols.disclosures.names import Disclosure
from protocols.errors import SecureFglError
from protocols.policy.guard import find
from protocols.policy.policy import PrivacyPolicy
from protocols.strict import problems, read_yaml
from secure_fgl.config import Config
from secure_fgl.config_values import set_key
from secure_fgl.errors import UsageError
from secure_fgl.store.files import settings_text

__all__ = ["AS_RUN", "Candidate", "candidates", "same_training"]

AS_RUN = "as run"
_GRIDS = (8, 6, 5, 4)  # bits; the coarsest that a grid may have is the last
_RARER = (2, 4)  # rounds are divided by it, and epochs multiplied
_HOLDERS = 4
_MOST = 50  # candidates of a file
_UNCHANGING = ("mask", "he", "ckks")  # guards under which sums are the same integers


@dataclass(frozen=True)
class Candidate:
    """One thing to try.

    Attributes:
        name: short; unique among those of a run.
        change: against the run's settings, in words.
        config, policy: to train with; None where it cannot be tried.
        why_not: why it cannot; empty if it can.
    """

    name: str
    change: str
    config: Config | None = None
    policy: PrivacyPolicy | None = None
    why_not: str = ""


def candidates(case: Case, config: Config, file: Path | None = None) -> tuple[Candidate, ...]:
    """Return the run itself, and what is tried beside it.

    Args:
        case: the run.
        config: its configuration, with paths of this machine.
        file: YAML, a list of ``{name, policy, set}``: a preset or policy file, and settings as
            ``run --set`` takes them; in place of the usual ones.

    Raises:
        UsageError: the file cannot be read or lists what is no candidate.
    """
    own = Candidate(AS_RUN, "nothing is changed", config, captured(case.policy))
    others = _usual(case, config) if file is None else _listed(file, case, config)
    return (own, *others)


def captured(policy: PrivacyPolicy) -> PrivacyPolicy:
    """Return a policy that keeps its rounds for audits, as attacks need; training is the same."""
    found = deepcopy(policy.document())
    found["capture"] = found.get("capture") or {}
    if "record_noise" in str(found["rules"].get("SUM")):
        return policy  # it forbids captures, and attacks that need none are run all the same
    return PrivacyPolicy.model_validate(found)


def same_training(case: Case, config: Config, candidate: Candidate) -> bool:
    """Tell whether a candidate's messages give the same training as the run's, bit for bit.

    Masks and encryption come off a total and change nothing of it. Everything else that differs
    counts as a change.
    """
    if candidate.config is None or candidate.policy is None:
        return False
    same = candidate.config.model_copy(update={"policy": config.policy}) == config
    return same and _training(candidate.policy) == _training(case.policy)


def _training(policy: PrivacyPolicy) -> dict[str, Any]:
    found = deepcopy(policy.document())
    for unheard in ("name", "capture", "retention", "approvals", "release"):
        found.pop(unheard, None)
    sums = found["rules"].get("SUM", [])
    clear = any(guard["guard"] == "unsafe_clear" for guard in sums)
    kept = [g for g in sums if g["guard"] not in (*_UNCHANGING, "seal")]
    found["rules"]["SUM"] = [*kept, clear]  # in clear single messages are read, not their sum
    return found


def _usual(case: Case, config: Config) -> Iterator[Candidate]:
    yield _cohort(case, config)
    yield _holders(case, config)
    yield from _coarser(case, config)
    for name in ("calibrated", "ldp"):
        noised = captured(PrivacyPolicy.preset(name))
        yield Candidate(name, f"the preset {name}, with captures", config, noised)
    yield from _rarer(case, config)


def _cohort(case: Case, config: Config) -> Candidate:
    name, sites = "larger cohort", len(case.plan.clients)
    given = dict(config.algorithm.options.get(config.algorithm.name, {}))
    asked = given.get("drawn", 0)
    if case.plan.drawn is None or not isinstance(asked, int) or not 0 < asked < sites:
        whole = f"all {sites} sites are in every total, and this run's data has no more"
        drawn = "its cohorts are drawn by no option `drawn` that could be raised: use --candidates"
        why = whole if case.plan.drawn is None else drawn
        return Candidate(name, "more sites in each total", why_not=why)
    most = min(sites, 2 * asked)
    options = {**config.algorithm.options, config.algorithm.name: {**given, "drawn": most}}
    algorithm = config.algorithm.model_copy(update={"options": options})
    changed = config.model_copy(update={"algorithm": algorithm})
    return Candidate(name, f"cohorts of {most} in place of {asked}", changed, captured(case.policy))


def _holders(case: Case, config: Config) -> Candidate:
    name, change = "holders", f"rows of {_HOLDERS} holders at least"
    if not item_rows(case.plan, case.policy):
        return Candidate(name, change, why_not="no message of this run has rows of items")
    if case.policy.holders >= _HOLDERS:
        return Candidate(name, change, why_not=f"the policy asks for {case.policy.holders} already")
    policy = _with(case.policy, "holders", holders=_HOLDERS)
    return Candidate(name, change, config, policy)


def _coarser(case: Case, config: Config) -> Iterator[Candidate]:
    grid: Any = find(case.policy.rules.get(Disclosure.SUM, ()), "quantise")
    fewer = [bits for bits in _GRIDS if grid is not None and bits < grid.bits]
    if not fewer:
        why = "no sum stands on a grid that could be coarser"
        yield Candidate("coarser grid", "fewer bits a number", why_not=why)
    for bits in fewer:
        rules = deepcopy(case.policy.document()["rules"])
        for guard in rules["SUM"]:
            guard.update({"bits": bits} if guard["guard"] == "quantise" else {})
        policy = _with(case.policy, f"grid-{bits}", rules=rules)
        yield Candidate(
            f"grid of {bits} bits", f"{bits} in place of {grid.bits} bits", config, policy
        )


def _rarer(case: Case, config: Config) -> Iterator[Candidate]:
    rounds, epochs = config.algorithm.rounds, config.algorithm.epochs
    for times in _RARER:
        fewer, more = max(1, rounds // times), epochs * times
        name = f"{fewer} releases"
        change = f"{fewer} rounds of {more} epochs in place of {rounds} of {epochs}"
        if rounds < times:
            yield Candidate(name, change, why_not=f"the run has {rounds} rounds")
            continue
        algorithm = config.algorithm.model_copy(update={"rounds": fewer, "epochs": more})
        changed = config.model_copy(update={"algorithm": algorithm})
        yield Candidate(name, change, changed, captured(case.policy))


def _with(policy: PrivacyPolicy, name: str, **more: Any) -> PrivacyPolicy:
    found = captured(policy).document()
    return PrivacyPolicy.model_validate({**found, **more, "name": name})


def _listed(file: Path, case: Case, config: Config) -> list[Candidate]:
    """Return the candidates of a file."""
    try:
        found = read_yaml(settings_text(file))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _no_list(file, "it cannot be read as YAML") from error
    if not isinstance(found, list) or not 0 < len(found) <= _MOST:
        raise _no_list(file, f"it holds no list of 1 to {_MOST} candidates")
    made = [_one(file, entry, case, config) for entry in found]
    names = [AS_RUN, *(one.name for one in made)]
    if len(set(names)) < len(names):
        raise _no_list(file, f"a name stands twice, or is {AS_RUN!r}")
    return made


def _one(file: Path, entry: Any, case: Case, config: Config) -> Candidate:
    keys = set(entry) if isinstance(entry, dict) else set()
    if "name" not in keys or not keys <= {"name", "policy", "set"} or len(keys) < 2:
        raise _no_list(file, "a candidate has a name, and a policy or settings to set, or both")
    name, settings = str(entry["name"])[:40], _texts(entry.get("set", []))
    if not name.isprintable() or settings is None:
        raise _no_list(file, "a name or a setting is no text")
    document = config.model_dump(mode="json")
    try:
        for setting in settings:
            set_key(document, setting)
        changed = Config.literal(document)
        policy = PrivacyPolicy.load(str(entry["policy"])) if "policy" in keys else case.policy
    except SecureFglError as error:
        raise _no_list(file, f"{name}: {error.what}") from error
    except ValidationError as error:
        raise _no_list(file, f"{name}: {problems(error)}") from error
    if changed.data != config.data or changed.policy != config.policy:
        raise _no_list(file, f"{name}: data stay as they are, and a policy stands under policy")
    words = [*settings, *([f"policy {entry['policy']}"] if "policy" in keys else [])]
    return Candidate(name, ", ".join(words), changed, captured(policy))


def _texts(found: Any) -> Sequence[str] | None:
    whole = isinstance(found, list) and all(isinstance(one, str) for one in found)
    return found if whole else None


def _no_list(file: Path, why: str) -> UsageError:
    return UsageError(
        f"{file} is no list of candidates.",
        why=why,
        fix="write a list such as: [{name: few, set: [algorithm.rounds=2]}]",
    )
