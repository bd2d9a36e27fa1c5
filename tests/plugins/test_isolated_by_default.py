"""Rules on a file's text are no wall: what keeps a plug-in from keys is isolation, the default."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocols.disclosures.released.messages import SharedTotal
from protocols.disclosures.released.parties import ModelKeeping
from secure_fgl import muting
from secure_fgl.config import Config
from secure_fgl.data import load_dataset
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.muting import AnswersWarned, mute
from secure_fgl.plugins.plugin import Kind, needless
from secure_fgl.run.simulation import Preparation
from secure_fgl.store.finished_run import Run
from tests.plugins.page import changed, config, write
from tests.secure_fgl.cli_tools import invoke

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are of Linux")

# A name that stands in an annotation as text is evaluated by `register`, in whatever process.
FOUND = "[o for o in __import__('gc').get_objects() if type(o).__name__ == 'Identity']"
REACHES = changed(
    ("from algorithms.tasks import Task", "from functools import singledispatch\n\nfrom algorithms.tasks import Task"),  # noqa: E501
    (
        "def my_fedprox(",
        f'''FOUND = []


@singledispatch
def look(x):
    return x


def evaluate() -> int:
    @look.register
    def _(x: "type('N' + str(len({FOUND})), (), dict())") -> None:
        FOUND.append(x)

    return max(int(kind.__name__[1:]) for kind in look.registry if kind.__name__[:1] == "N")


def my_fedprox(''',
    ),
    (
        "        w = site.memory",
        '        site.memory["reached"] = evaluate()\n        w = site.memory',
    ),
)  # fmt: skip
ON_REPORT = r"beside all clients' keys and data"
WARNS = changed(
    ("from algorithms.tasks import Task", "import warnings\n\nfrom algorithms.tasks import Task"),
    (
        "        w = site.memory",
        '        warnings.warn(f"SECRET {site.count}")\n        w = site.memory',
    ),
)


def test_the_text_passes_every_rule_on_it() -> None:
    tree = ast.parse(REACHES)
    assert [*needless(Kind.ALGORITHM, tree)] == []
    assert [*needless(Kind.ALGORITHM, ast.parse("import gc"))]  # the control
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert "eval" not in names  # nothing to see: `register` evaluates the text


def reached(folder: Path, chosen: Config, text: str = REACHES) -> tuple[set[int], Run]:
    """Return how many parties' keys an answer at each client found, and the run."""
    federation = Federation(config=chosen, plugins=[write(folder, text=text)])
    seen: list[Preparation] = []
    made = federation.prepare

    def prepare(plan: object = None) -> Preparation:
        seen.append(made(plan))  # type: ignore[arg-type]
        return seen[-1]

    federation.prepare = prepare  # type: ignore[method-assign,assignment]
    run = federation.run(folder / "run")
    return {site.memory["reached"] for site in seen[0].sites}, run


BESIDE = changed(
    ("        total = (yield Ask", "        ROUNDS.append(evaluate())\n        total = (yield Ask"),
    (
        "    first = lambda rng: Start(",
        "    first = lambda rng: INITS.append(evaluate()) or Start(",
    ),
    ("FOUND = []", "FOUND = []\nINITS = []\nROUNDS = []"),
    text=REACHES,
)
ALONE = "import, init and round"


def test_what_is_no_answer_runs_beside_this_client_s_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control is the same code in an answer of the same run: it is in another process."""
    at: dict[str, list[int]] = {}
    real = ModelKeeping._move

    def move(self: ModelKeeping, total: SharedTotal, over: int) -> None:
        (theirs,) = (m for n, m in sys.modules.items() if n.endswith(digest))
        before = len(theirs.ROUNDS)
        real(self, total, over)
        at.setdefault(self._context.me.party.name, []).extend(theirs.ROUNDS[before:])

    monkeypatch.setattr(ModelKeeping, "_move", move)
    digest = hashlib.sha256(BESIDE.encode()).hexdigest()[:16]
    found, run = reached(tmp_path, one_process(), BESIDE)
    assert found == {0}
    assert len(at) == 5 and all(min(keys) >= 6 for keys in at.values())  # each client's round
    (theirs,) = (m for n, m in sys.modules.items() if n.endswith(digest))  # imported here
    assert theirs.INITS
    assert [w for w in warnings_of(run) if ALONE in w and "alone are isolated" in w]
    assert ALONE in (run.path / "report" / "report.md").read_text()


def warnings_of(run: Run) -> list[str]:
    return list(json.loads((run.path / "plan.json").read_text())["warnings"])


def one_process(**more: object) -> Config:
    return config(transport={"workers": 1}, **more)


def test_an_answer_that_evaluates_text_reaches_no_keys_by_default(tmp_path: Path) -> None:
    found, run = reached(tmp_path, one_process())
    assert found == {0}
    assert run.result["answers"] == "isolated"
    assert not any("isolate: false" in warning for warning in warnings_of(run))
    told = (run.path / "report" / "report.md").read_text()
    assert "Answers of that code" in told and ON_REPORT not in told


def test_control_without_isolation_it_has_every_party_s_keys(tmp_path: Path) -> None:
    found, run = reached(tmp_path, one_process(isolate=False))
    assert min(found) >= 6  # five clients and the aggregator
    assert run.result["answers"] == "in the clients' own process"
    said = [warning for warning in warnings_of(run) if "isolate: false" in warning]
    assert len(said) == 1 and "all clients' keys and data" in said[0]
    assert ON_REPORT in (run.path / "report" / "report.md").read_text()


def test_what_is_isolated_by_default(tmp_path: Path) -> None:
    assert not Config().isolated  # no code from outside
    assert Config(plugins=("a/my_fedprox.py",)).isolated
    assert not Config(plugins=("a/my_fedprox.py",), isolate=False).isolated
    assert Config(isolate=True).isolated
    handed = Federation(config=config(), plugins=[write(tmp_path)])
    assert handed.config.isolated  # named beside the configuration
    assert Config(plugins=("a/b.py",), isolate=False).shared().isolate is None


def test_data_in_memory_need_a_word(tmp_path: Path) -> None:
    whole = load_dataset("synthetic_banks", customers=40, transactions=60)
    federation = Federation(whole, config=config(), plugins=[write(tmp_path)])
    with pytest.raises(UsageError, match="handed over in memory") as refused:
        federation.run(tmp_path / "run")
    assert "isolate: false" in refused.value.fix


def test_the_plan_says_whose_choice_the_first_model_is(tmp_path: Path) -> None:
    plan = Federation(config=config(), plugins=[write(tmp_path)]).plan()
    (said,) = [w for w in plan.warnings if "is a plug-in" in w]
    assert "its init is its author's choice" in said
    ours = {**config().model_dump(mode="json"), "plugins": []}
    ours["algorithm"]["name"] = "fed_prox"
    assert "init" not in " ".join(Federation(config=Config.parse(ours)).plan().warnings)


# --- warnings ---------------------------------------------------------------------------------


def texts(given: list[warnings.WarningMessage]) -> str:
    return "\n".join(str(warning.message) for warning in given)


def test_an_answer_s_warnings_are_told_by_number_and_category_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        Federation(
            config=one_process(isolate=False), plugins=[write(tmp_path, text=WARNS)]
        ).run(tmp_path / "run")  # fmt: skip
    assert "SECRET" not in texts(given) and "1 UserWarning" in texts(given)
    assert all(w.category is AnswersWarned for w in given if "An answer" in str(w.message))
    shown = capfd.readouterr()
    assert "SECRET" not in shown.out + shown.err


@pytest.fixture
def loud(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(muting, "mute", lambda what: contextlib.nullcontext())
    yield


@pytest.mark.usefixtures("loud")
def test_control_without_it_the_text_comes_out(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        Federation(
            config=one_process(isolate=False), plugins=[write(tmp_path, text=WARNS)]
        ).run(tmp_path / "run")  # fmt: skip
    assert "SECRET" in texts(given)


ALL_WARN = changed(
    ("from algorithms.tasks import Task", "import warnings\n\nfrom algorithms.tasks import Task"),
    (
        "        return ClientModel((given.weights",
        '        warnings.warn(f"SECRET {site.count}")\n        return ClientModel((given.weights',
    ),
    (
        "        total = (yield Ask",
        '        warnings.warn(f"SECRET {state.weights[:2]}")\n        total = (yield Ask',
    ),
)


def warned_of(folder: Path, policy: str = "masks") -> str:
    """Return the texts of all warnings of a run whose plug-in warns in models and rounds."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        asked = config(policy, isolate=False, evaluation={"references": ["local", "centralised"]})
        Federation(config=asked, plugins=[write(folder, text=ALL_WARN)]).run(folder / "run")
    return texts(given)


def test_what_rounds_and_models_warn_of_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the aggregator, and under `masks` also at clients, which play rounds themselves."""
    told = warned_of(tmp_path / "held")
    assert "SECRET" not in told and "A round gave warnings (1 UserWarning)" in told
    monkeypatch.setattr(muting, "_quiet_round", lambda code: code)
    assert "SECRET [" in warned_of(tmp_path / "loud")  # the control


def test_a_round_that_is_muted_is_played_as_before() -> None:
    """It returns, catches what is thrown into it, and is closed, as without."""
    seen: list[object] = []

    def one(state: int, cohort: object) -> Iterator[object]:
        try:
            seen.append((yield "first"))
            try:
                yield "second"
            except KeyError:
                print("SECRET")
                yield "third"
        finally:
            seen.append("closed")
        return state + 1

    steps = muting._quiet_round(one)(1, None)
    assert next(steps) == "first" and steps.send("reply") == "second"
    assert steps.throw(KeyError("x")) == "third"
    with pytest.raises(StopIteration) as ended:
        steps.send(None)
    assert ended.value.value == 2 and seen == ["reply", "closed"]
    again = muting._quiet_round(one)(1, None)
    next(again)
    again.close()
    assert seen == ["reply", "closed", "closed"]


def test_what_a_file_warns_of_while_it_is_imported_is_not_shown(tmp_path: Path) -> None:
    loud = "import warnings\n\nwarnings.warn('SECRET')\n\nfrom algorithms.tasks"
    file = write(tmp_path, text=changed(("from algorithms.tasks", loud)))
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        Federation(config=config(), plugins=[file]).plan()
    assert "SECRET" not in texts(given) and "while it was imported, gave warnings" in texts(given)


def test_what_answers_warn_of_when_an_audit_computes_them_again_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, text=WARNS)
    Federation(config=one_process(), plugins=[file]).run(tmp_path / "run")

    def attacked() -> str:
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            found = invoke(
                "audit", "attack", tmp_path / "run", "--plugin", file, "--fail-on", "never",
                "--attacks", "A05",
            )  # fmt: skip
        assert found.exit_code == 0, found.stderr
        return texts(given) + found.stdout + found.stderr

    assert "SECRET" not in attacked()
    monkeypatch.setattr(muting, "mute", lambda what: contextlib.nullcontext())
    assert "SECRET" in attacked()  # the control


def test_nothing_that_an_answer_prints_or_logs_comes_out(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    value = type("SECRET", (DeprecationWarning,), {})
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        with pytest.raises(ZeroDivisionError), mute("train"):
            print("SECRET")
            print("SECRET", file=sys.stderr)
            logging.getLogger("theirs").error("SECRET")
            logging.getLogger("theirs").log(60, "SECRET")
            warnings.warn("SECRET", value, stacklevel=1)
            1 / 0  # noqa: B018
        logging.getLogger("ours").error("heard")
    shown = capfd.readouterr()
    assert "SECRET" not in shown.out + shown.err + caplog.text + texts(given)
    assert "heard" in caplog.text
    assert [w.category for w in given] == []  # of a failed answer the error says enough
