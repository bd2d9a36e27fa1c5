"""Clients that vanish, as the simulator plays them from the configuration."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocols.disclosures.names import Disclosure
from protocols.plan.steps import Service, Step
from protocols.policy.policy import PrivacyPolicy
from secure_fgl import Federation
from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.store.finished_run import Run
from secure_fgl.transports.memory import FaultyTransport, drops
from tests.secure_fgl.cli_tools import CONFIG

NAMES = ("client-1", "client-2", "client-3", "client-4", "client-5")


def played(folder: Path, faults: str, policy: str = "masks", **more: Any) -> Run:
    document = {**Config.load(config_file(folder)).model_dump(mode="json"), **more}
    document["policy"], document["faults"] = policy, {"drop": faults}
    document["algorithm"]["rounds"] = 3
    return Federation.from_config(Config.parse(document)).run(folder / f"run{faults}")


def config_file(folder: Path) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(CONFIG)
    return path


def test_a_list_of_drops_is_read() -> None:
    one, other = drops("2@3,4@5:before_shares", NAMES, 5)
    assert (one.client, one.round, one.moment) == ("client-2", 3, "")
    assert (other.client, other.round, other.moment) == ("client-4", 5, "before_shares")
    assert drops("", NAMES, 5) == ()


@pytest.mark.parametrize("text", ["2", "2@", "@3", "0@1", "2@3:later", "2@3;4@5", "a@b"])
def test_what_is_no_list_of_drops_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="configuration is not valid"):
        Config.parse({"faults": {"drop": text}})


OPENING = (
    *(Step.SURVIVORS, Step.VOTE, Step.VOTES, Step.SHARES),
    *(Step.ALL_HERE, Step.SELF_SHARES),
)
ROUND = (  # of two Asks, as item, exchange, whether the client sends it
    ("a.down", 5, False),
    ("a.up.SUM", 5, True),
    ("a.up.MIXED", 5, True),
    ("a.survivors", 5, False),
    ("a.vote", 5, True),
    ("a.votes", 5, False),
    ("a.shares", 5, True),
    ("b.down", 6, False),
    ("b.ack", 6, True),
    ("c.down", 7, False),
    ("c.up.SUM", 7, True),
)


PLAN = SimpleNamespace(
    items=[
        SimpleNamespace(id=f"{name}.{rest}", part=part, step=step)
        for name in "abc"
        for rest, part, step in [
            ("up.MIXED", Disclosure.MIXED, Step.UP),
            ("up.SUM", Disclosure.SUM, Step.UP),
            *((str(step), Service.ASK, step) for step in (Step.DOWN, Step.ACK)),
            *((str(step), Disclosure.SUM, step) for step in OPENING),
        ]
    ]
)


class Told:
    """A transport that says nothing and counts what reaches it."""

    def __init__(self) -> None:
        self.items: list[str] = []

    def exchange(self, deliveries: Any) -> list[Any]:
        self.items += [delivery.item for delivery in deliveries]
        return []


def through(monkeypatch: pytest.MonkeyPatch, moment: str, past: bytes = b"", start: int = 0) -> Any:
    """Return what of a round gets through to or from client-2, which vanishes in it."""
    monkeypatch.setattr("secure_fgl.transports.memory.Envelope.decode", lambda data: data)
    told = Told()
    faulty = FaultyTransport(told, PLAN, drops(f"2@3{moment}", NAMES, 5), past)  # type: ignore[arg-type]
    for round in (3, 4):
        for item, exchange, sends in ROUND[start:]:
            sender, to = ("client-2", "aggregator") if sends else ("aggregator", "client-2")
            header = SimpleNamespace(sender=sender, item=item, exchange=exchange, round=round)
            data = SimpleNamespace(header=header)
            faulty.exchange([SimpleNamespace(data=data, to=to, item=item)])  # type: ignore[list-item]
        if round == 3:
            found, told.items = told.items, []
    assert told.items == [item for item, *_ in ROUND[start:]]  # it is back
    return found


def test_who_vanished_after_its_upload_answers_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = [item for item, *_ in ROUND]
    assert through(monkeypatch, "") == []
    assert through(monkeypatch, ":after_upload") == whole[:3]
    assert through(monkeypatch, ":before_shares") == whole[:6]


def test_after_a_kill_who_had_vanished_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The aggregator's ledger says what had got through."""
    receipt = {"kind": "receipt", "sender": "client-2", "round": 3, "item": "a.up.SUM"}
    told = {**receipt, "kind": "release", "recipient": "relay", "exchange": 4}
    lines = [({**receipt, "exchange": 5}, b""), (told, b"")]
    monkeypatch.setattr(
        "secure_fgl.transports.memory.read_lines", lambda past: lines if past else []
    )
    assert through(monkeypatch, ":after_upload", b"past", start=7) == []
    # Control: who does not know of it lets it answer the next Ask.
    whole = [item for item, *_ in ROUND]
    assert through(monkeypatch, ":after_upload", start=7) == whole[7:]


AT_ONCE = (  # the same round where nobody was missing
    *ROUND[:3],
    ("a.all_here", 5, False),
    ("a.self_shares", 5, True),
    *ROUND[7:],
)


def test_who_vanishes_before_its_shares_sends_none_in_one_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.secure_fgl.test_faults.ROUND", AT_ONCE)
    whole = [item for item, *_ in AT_ONCE]
    assert through(monkeypatch, ":before_shares") == whole[:4]
    assert through(monkeypatch, ":after_upload") == whole[:3]
    told = {"kind": "release", "recipient": "client-2", "round": 3, "item": "a.all_here"}
    lines = [({**told, "exchange": 5}, b"")]
    monkeypatch.setattr(
        "secure_fgl.transports.memory.read_lines", lambda past: lines if past else []
    )
    assert through(monkeypatch, ":before_shares", b"past", start=5) == []
    assert through(monkeypatch, ":before_shares", start=5) == whole[5:]


def test_a_client_that_does_not_exist_cannot_vanish(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="client 6"):
        played(tmp_path, "6@2")


def test_a_client_cannot_vanish_after_the_last_round(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="round 9"):
        played(tmp_path, "1@9")
    assert not list(tmp_path.glob("run*"))  # refused before anything is made


def test_a_round_below_the_smallest_cohort_is_skipped_and_the_run_goes_on(tmp_path: Path) -> None:
    run = played(tmp_path, "1@2,2@2")
    assert run.result["lost_rounds"] == [2]
    assert run.verify().ok
    assert run.metrics["test_accuracy"] is not None
    whole = played(tmp_path, "")
    assert run.model_sha256 != whole.model_sha256


def test_a_last_round_that_is_lost_takes_the_closing_score_with_it(tmp_path: Path) -> None:
    run = played(tmp_path, "1@3,2@3")
    assert run.result["lost_rounds"] == [3]
    assert run.metrics["best_round"] < 3
    assert run.verify().ok


def test_keys_are_agreed_on_once_an_epoch(tmp_path: Path) -> None:
    document = PrivacyPolicy.preset("masks").document()
    policy = PrivacyPolicy.model_validate({**document, "rekey_rounds": 2})
    document = Config.load(config_file(tmp_path)).model_dump(mode="json")
    document["algorithm"]["rounds"] = 4
    federation = Federation(config=Config.parse(document), policy=policy)
    run = federation.run(tmp_path / "run")
    keys = [
        line
        for file in sorted((run.path / "ledger").glob("client-*.jsonl"))
        for line in file.read_text().splitlines()
        if '"item":"pair.boxes"' in line and '"kind":"release"' in line
    ]
    assert len(keys) == 2 * 5  # each client, once an epoch
    assert run.verify().ok
