"""Our two NVFlare classes in one process: what they carry, what they say when something fails."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from nvflare.apis.fl_constant import ReservedTopic, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable
from nvflare.apis.signal import Signal
from nvflare.fuel.utils import fobs

from protocols.errors import BadEnvelope, LedgerError, RemoteProtocolError
from protocols.evidence.ledger import read_lines
from protocols.roles.client import ClientSession
from protocols.sessions.engine import Delivery
from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.errors import PlanDrift, UsageError
from secure_fgl.federation import Federation
from secure_fgl.isolation import kernel
from secure_fgl.sites.answering import Answerer
from secure_fgl.sites.process import conduct, open_process
from secure_fgl.store.client_models import ClientModels
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.hand_overs import gather_files, write_hand_over
from secure_fgl.transports.broker import channel
from secure_fgl.transports.broker.codes import Code, Heard
from secure_fgl.transports.broker.patience import SiteTransport
from secure_fgl.transports.nvflare import wire
from secure_fgl.transports.nvflare.executor import Seat
from secure_fgl.transports.nvflare.pushed.awaited import JobAborted
from secure_fgl.transports.nvflare.pushed.carrier import PushCarrier
from tests.sites.faulty import Dying, Sums
from tests.sites.stage import SERVER_SITE, Parties, assemble, banks, gather, side

Answer = Callable[[str, Shareable], Shareable | None]

RUN = "ab" * 16


@dataclass
class FakeEngine:
    """Hands what is pushed to functions, through the engine's encoding."""

    answer: Callable[[str], Answer]

    def new_context(self) -> Any:
        return contextlib.nullcontext(FLContext())

    def send_aux_request(
        self, *, targets: list[str], topic: str, request: Shareable, **more: Any
    ) -> dict[str, Shareable]:
        (site,) = targets
        assert topic == ReservedTopic.DO_TASK
        name = request.get_header(ReservedHeaderKey.TASK_NAME)
        found = self.answer(site)(name, fobs.loads(fobs.dumps(request)))
        return {} if found is None else {site: fobs.loads(fobs.dumps(found))}


def transport(answer: Callable[[str], Answer], sites: dict[str, str], **more: Any) -> SiteTransport:
    abort = more.pop("abort", Signal())
    carrier = PushCarrier(FakeEngine(answer), abort=abort)
    seconds = more.pop("deadline", 5.0)
    return SiteTransport(carrier, sites, deadline=lambda: seconds, **more)


def seated(parties: Parties, patch: pytest.MonkeyPatch) -> dict[str, Answerer]:
    """Return what answers for every party but the aggregator, each with a session of its own."""
    sites = [site for site in parties.folders if site != SERVER_SITE]
    return {site: Answerer(open_process(parties.kit(site))) for site in sites}


def executed(seats: dict[str, Answerer]) -> Callable[[str], Answer]:
    """Hand tasks to the parties without a socket in between."""

    def serve(site: str, name: str, data: Shareable) -> Shareable:
        said = seats[site].answer(name, wire.unpack(data))
        return wire.pack(said.envelopes) if said.code is Code.DONE else wire.say(said.code)

    return lambda site: lambda name, data: serve(site, name, data)


def test_a_run_over_tasks_is_the_run_in_memory(
    uninterrupted: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And bytes that the engine delivers twice are answered twice alike (O5)."""
    parties = assemble(banks(), tmp_path / "parties")
    seats = seated(parties, monkeypatch)
    heard: list[tuple[list[bytes], list[bytes]]] = []

    def twice(site: str) -> Answer:
        def serve(name: str, data: Shareable) -> Shareable:
            first, again = (executed(seats)(site)(name, data) for _ in range(2))
            heard.append((wire.unpack(first), wire.unpack(again)))
            return first

        return serve

    sites = {k: v for k, v in parties.charter.sites.items() if k != AGGREGATOR_NAME}
    carried = transport(twice, sites)
    digest = conduct(open_process(parties.kit(SERVER_SITE)), carried)
    carried.end(parties.end())
    result, twin = parties.result(), uninterrupted.result
    same = ("metrics", "bytes_up", "bytes_down", "exchanges", "lost_rounds", "backend", "data")
    assert digest == uninterrupted.model_sha256
    assert {key: result[key] for key in same} == {key: twin[key] for key in same}
    assert any(first for first, _ in heard) and all(first == again for first, again in heard)
    for site, folder in parties.folders.items():
        assert (side(folder) / "heads" / f"{folder.name}.checkpoint").is_file(), site
    checkpoint = uninterrupted.folder.read("checkpoints/best.npz")
    for name in parties.charter.plan.clients:  # each site holds its own model and no other
        folder = next(f for f in parties.folders.values() if f.name == name)
        models = ClientModels(parties.charter.run, side(folder), folder / "keys")
        assert models.clients() == models.openable() == [name]
        ours, theirs = models.open(name), uninterrupted.client_models.open(name, checkpoint)
        assert np.array_equal(ours.model.shared, theirs.model.shared)
        assert ours.about["data_sha256"] == theirs.about["data_sha256"]
    for site in ("site-1", SERVER_SITE):  # nobody begins the same run twice
        with pytest.raises(UsageError, match=r"cannot be resumed|was not killed"):
            open_process(parties.kit(site))


def test_a_key_authority_is_one_more_site(
    uninterrupted: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums under homomorphic encryption, opened by a party that is killed in every task (O5)."""
    parties, sums = assemble(banks(policy="he"), tmp_path), Sums.watched(monkeypatch)
    assert parties.kit("site-6").me.party.role is Role.KEY_AUTHORITY
    dying = Dying(parties, seated(parties, monkeypatch), {"site-6"})
    digest = conducted(parties, dying)
    assert len(dying.deaths) >= 3
    assert digest == uninterrupted.model_sha256
    assert {*sums.check(smallest=4)} == {5}
    for folder in parties.folders.values():
        found = Run(folder).verify()
        assert found.verdict == "own side holds", (folder.name, found.failed)
    handed = [write_hand_over(f, tmp_path / f"{f.name}.zip")[0] for f in parties.folders.values()]
    assert gather_files(handed, tmp_path / "run").missing == ()
    found = Run(tmp_path / "run").verify()
    assert found.verdict == "self-consistent only", found.failed
    secret = json.loads((parties.folders["site-1"] / "identity.json").read_text())["seed"]
    assert not any(secret.encode() in file.read_bytes() for file in handed)


@pytest.mark.long
def test_a_site_that_left_for_good_is_held_to_what_others_received(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers nothing from its sixth task on, and never hears of the end."""
    parties = assemble(banks(rounds=2), tmp_path / "parties")
    seats, tasks = seated(parties, monkeypatch), list[str]()

    def leaving(site: str) -> Answer:
        def serve(name: str, data: Shareable) -> Shareable:
            tasks.append(site)
            if site == "site-2" and tasks.count(site) > 5:
                return wire.say(Code.FAILED)
            return executed(seats)(site)(name, data)

        return serve

    sites = {k: v for k, v in parties.charter.sites.items() if k != AGGREGATOR_NAME}
    carried = transport(leaving, sites, deadline=60.0)
    conduct(open_process(parties.kit(SERVER_SITE)), carried)
    carried.end(parties.end())
    gone = parties.folders["site-2"]
    assert not (side(gone) / "heads").exists()
    with pytest.raises(UsageError, match="at work"):
        write_hand_over(gone, tmp_path / "early.zip")
    seats["site-2"].process.files.close()  # what the system does for a dead process
    assert Run(gone).verify().verdict == "own side holds, unsigned"
    handed = [write_hand_over(f, tmp_path / f"{f.name}.zip")[0] for f in parties.folders.values()]
    gather_files(handed, tmp_path / "run")
    found = Run(tmp_path / "run").verify()
    assert found.verdict == "self-consistent only", found.failed
    tree = next(step.detail for step in found.steps if step.name == "tree")
    assert "client-2 left at round" in tree
    ledger = tmp_path / "run" / "ledger" / "client-2.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:6]))
    assert Run(tmp_path / "run").verify().verdict == "FAILED at tree"


def test_o4_a_witness_is_one_more_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one's own, computed again by a party that is killed in every task."""
    config = banks(policy="pilot", algorithm="fed_pub")
    twin = Federation.from_config(config).run(tmp_path / "memory").result
    parties = assemble(config, tmp_path / "parties")
    assert parties.kit("site-7").me.party.role is Role.WITNESS
    dying = Dying(parties, seated(parties, monkeypatch), {"site-7"})
    conducted(parties, dying)
    assert len(dying.deaths) >= 2
    assert parties.result()["bytes_up"] == twin["bytes_up"]
    scores = parties.result()["metrics"]
    assert scores["test_accuracy"] == pytest.approx(twin["metrics"]["test_accuracy"], abs=0.02)
    monkeypatch.setattr("audits.evidence.roster_file.TRANSPORTS", ("memory", "nvflare"))
    found = Run(gather(parties, tmp_path / "run")).verify()
    assert found.verdict == "self-consistent only", found.failed
    for folder in parties.folders.values():
        assert Run(folder).verify().verdict == "own side holds", folder.name
    assert [e["kind"] for e in read_lines_of(parties, "site-7")].count("witness") == 2


def conducted(parties: Parties, answer: Callable[[str], Answer]) -> str | None:
    """Run to the end, waiting for other roles than clients as a real aggregator does."""
    sites = {k: v for k, v in parties.charter.sites.items() if k != AGGREGATOR_NAME}
    carried = transport(answer, sites, deadline=60.0, plan=parties.charter.plan)
    digest = conduct(open_process(parties.kit(SERVER_SITE)), carried)
    carried.end(parties.end())
    return digest


def read_lines_of(parties: Parties, site: str) -> list[dict[str, Any]]:
    """Return the entries of one party's ledger."""
    folder = parties.folders[site]
    ledger = side(folder) / "ledger" / f"{folder.name}.jsonl"
    return [entry for entry, _ in read_lines(ledger.read_bytes())]


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours may catch it."""


@dataclass
class Fatal:
    """A transport under which everybody's process is killed in its n-th exchange."""

    inner: SiteTransport
    left: int
    delivered: bool

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        if self.left == 0:
            if self.delivered:  # killed after the clients had answered
                self.inner.exchange(deliveries)
            raise Killed
        self.left -= 1
        return self.inner.exchange(deliveries)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Federation.from_config(banks()).run(tmp_path_factory.mktemp("banks") / "memory")


@pytest.mark.parametrize(
    ("exchange", "delivered"),
    [
        (1, True),
        (4, False),
        *(pytest.param(*at, marks=pytest.mark.long) for at in ((0, False), (3, True), (7, True))),
    ],
)
def test_o5_killed_processes_go_on_to_the_same_result(
    exchange: int,
    delivered: bool,
    uninterrupted: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parties = assemble(banks(), tmp_path / "parties")
    sites = {k: v for k, v in parties.charter.sites.items() if k != AGGREGATOR_NAME}
    seats = seated(parties, monkeypatch)
    aggregator = open_process(parties.kit(SERVER_SITE))
    with pytest.raises(Killed):
        conduct(aggregator, Fatal(transport(executed(seats), sites), exchange, delivered))
    for process in (aggregator, *(seat.process for seat in seats.values())):
        process.files.close()  # what the system does for a dead process

    seats = seated(parties, monkeypatch)
    carried = transport(executed(seats), sites)
    digest = conduct(open_process(parties.kit(SERVER_SITE)), carried)
    carried.end(parties.end())
    assert digest == uninterrupted.model_sha256
    assert parties.result()["metrics"] == uninterrupted.result["metrics"]
    gathered = gather(parties, tmp_path / "run")
    monkeypatch.setattr("audits.evidence.roster_file.TRANSPORTS", ("memory", "nvflare"))
    assert Run(gathered).verify().verdict == "self-consistent only"


def test_two_processes_of_one_party_do_not_work_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secure_fgl.sites.lock._LOCK_SECONDS", 0.3)
    parties = assemble(banks(), tmp_path)
    first = open_process(parties.kit(SERVER_SITE))
    with pytest.raises(UsageError, match="Another process"):
        open_process(parties.kit(SERVER_SITE))
    first.files.close()
    open_process(parties.kit(SERVER_SITE)).close()


def test_who_has_not_answered_by_the_deadline_has_vanished() -> None:
    release = threading.Event()

    def answer(site: str) -> Answer:
        def serve(name: str, data: Shareable) -> Shareable:
            if site == "slow" and wire.unpack(data) == [b"1"]:
                release.wait(5)
            return wire.pack([site.encode() + wire.unpack(data)[0]])

        return serve

    carried = transport(answer, {"a": "quick", "b": "slow"}, deadline=0.3)
    first = carried.exchange([Delivery("a", b"1"), Delivery("b", b"1")])
    assert [delivery.data for delivery in first] == [b"quick1"]
    assert 0.3 <= carried.seconds[0] < 3
    release.set()  # what it says now is of an exchange that is over
    second = carried.exchange([Delivery("a", b"2"), Delivery("b", b"2")])
    assert [delivery.data for delivery in second] == [
        b"quick2",
        b"slow2",
    ]  # nothing late among them


def test_who_answers_is_told_and_an_error_s_code_is_no_answer() -> None:
    def answer(site: str) -> Answer:
        return lambda name, data: wire.say(Code.FAILED) if site == "ill" else wire.pack([])

    carried, heard = transport(answer, {"a": "well", "b": "ill"}, deadline=0.4), list[str]()
    carried.heard = heard.append
    assert carried.exchange([Delivery(name, b"1") for name in ("a", "b")]) == []
    assert heard == ["a"]


@pytest.mark.parametrize("kind", ["code", "field", "type", "many", "site"])
def test_what_is_no_answer_counts_as_none(kind: str) -> None:
    def answer(site: str) -> Answer:
        def serve(name: str, data: Shareable) -> Shareable:
            if site == "good":
                return wire.pack([b"good"])
            bad = Shareable()
            if kind == "code":
                bad = wire.say(Code.FAILED)
            if kind in ("type", "many"):
                bad["envelopes"] = [b""] * 65 if kind == "many" else ["text"]
            return bad

        return serve

    if kind == "site":
        with pytest.raises(KeyError):
            transport(answer, {"a": "good"}).exchange([Delivery("b", b"")])
        return
    carried = transport(answer, {"a": "good", "b": "bad"}, deadline=5.0)
    found = carried.exchange([Delivery("a", b""), Delivery("b", b"")])
    assert [delivery.data for delivery in found] == [b"good"]
    assert carried.seconds[0] < 4  # an error is not waited for


def test_a_job_that_is_aborted_ends_an_exchange() -> None:
    abort = Signal()
    abort.trigger("stop")
    carried = transport(lambda site: lambda name, data: None, {"a": "quick"}, abort=abort)
    with pytest.raises(JobAborted):
        carried.exchange([Delivery("a", b"")])


@pytest.mark.parametrize(
    "carried", [None, {"envelopes": [b"x"]}, Shareable(), Shareable({"envelopes": b"x"})]
)
def test_only_a_list_of_bytes_is_unpacked(carried: Any) -> None:
    assert wire.unpack(wire.pack([b"x", b""])) == [b"x", b""]
    with pytest.raises(BadEnvelope):
        wire.unpack(carried)


# --- a site that fails --------------------------------------------------------------------------

SECRET = "node 17 has label 3"


@pytest.mark.parametrize("error", [ValueError, RemoteProtocolError, LedgerError])
def test_o27_an_error_s_text_stays_at_the_party(
    error: type[Exception], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing:
        kit = SimpleNamespace(party=tmp_path, charter=SimpleNamespace(run=RUN))

        def receive(self, data: bytes) -> list[Delivery]:
            raise error(SECRET)

    failing: Any = Failing()
    answerer = Answerer(failing)
    with caplog.at_level(logging.DEBUG):
        said = answerer.answer(wire.TASK, [b"x"])
    assert said == Heard((Code.FAILED, Code.UNREADABLE)[error is RemoteProtocolError])
    assert SECRET not in caplog.text
    log = tmp_path / "site.log"
    # The texts of our own errors hold no value; of others the class and the place are told.
    assert (SECRET in log.read_text()) is (error is not ValueError)
    assert error.__name__ in log.read_text() and log.stat().st_mode & 0o777 == 0o600
    assert answerer.broken == (error is LedgerError)  # what cannot be kept is taken up anew


def test_o27_a_code_is_all_that_a_relay_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a party, and with nobody at its socket: at once, in NVFlare's own words."""
    monkeypatch.delenv(channel.SOCKET_VARIABLE, raising=False)
    assert asked(wire.TASK) == ReturnCode.EXECUTION_EXCEPTION
    monkeypatch.setenv(channel.SOCKET_VARIABLE, str(tmp_path / "gone"))
    assert asked(wire.TASK) == ReturnCode.EARLY_TERMINATION
    tmp_path.chmod(0o700)
    channel.listen(channel.of_run(tmp_path / "killed", RUN)).close()
    monkeypatch.setenv(channel.SOCKET_VARIABLE, str(tmp_path / "killed"))
    assert asked(wire.TASK) == ReturnCode.SERVICE_UNAVAILABLE


def asked(task: str) -> Any:
    sent = wire.request("once", [b"x"], seconds=60.0, hold=60.0)
    return Seat(RUN).execute(task, sent, FLContext(), Signal()).get_return_code()


@pytest.mark.parametrize("task", ["train", "secure_fgl.envelopes "])
def test_a_site_answers_no_task_but_ours(task: str) -> None:
    assert asked(task) == ReturnCode.BAD_TASK_DATA


def test_only_the_aggregator_s_word_ends_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed server ends jobs too, and a party must be able to go on after that."""
    parties = assemble(banks(), tmp_path)
    seat = seated(parties, monkeypatch)["site-1"]
    head = side(parties.folders["site-1"]) / "heads" / "client-1.checkpoint"
    end = parties.end()
    others = parties.kit("site-2")
    foreign = assemble(banks(), tmp_path / "another").end()  # of another run
    notes = [[b""], [bytes(64)], [end[:-1]], [others.charter.end(others.me.signing)], [foreign]]
    for note in ([], *notes):
        assert seat.answer(wire.END, note) == Heard(Code.UNREADABLE)
        assert not seat.over and not head.exists()
        assert (parties.folders["site-1"] / "keys").is_dir()  # it can still be resumed
    assert seat.answer(wire.END, [end]) == Heard(Code.DONE, [])
    assert seat.over and head.is_file()


def test_a_party_refuses_a_plan_that_its_own_installation_does_not_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = assemble(banks(), tmp_path)
    plan = Federation.from_config(banks(rounds=2)).plan()
    monkeypatch.setattr(Federation, "plan", lambda self: plan)
    with pytest.raises(PlanDrift):
        open_process(parties.kit("site-1"))
    assert not parties.kit("site-1").run_folder.exists()


def test_a_client_whose_kernel_cannot_isolate_answers_does_not_sit_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A party that computes no answers needs none of it."""
    parties = assemble(banks(policy="he"), tmp_path)
    monkeypatch.setattr(kernel.sys, "platform", "darwin")
    with pytest.raises(kernel.CannotIsolate, match="cannot be isolated"):
        open_process(parties.kit("site-1"))
    assert not parties.kit("site-1").run_folder.exists()
    open_process(parties.kit("site-6")).close()


def test_the_aggregator_is_asked_nothing(tmp_path: Path) -> None:
    parties = assemble(banks(), tmp_path)
    process = open_process(parties.kit(SERVER_SITE))
    with pytest.raises(RemoteProtocolError):
        process.receive(b"")
    client = open_process(parties.kit("site-1"))
    assert client.prepared.sites == []  # the data are in the process of the answers alone
    assert isinstance(client.session, ClientSession) and client.session._site.data is None
    with pytest.raises(RemoteProtocolError, match="aggregator"):
        conduct(client, transport(lambda site: lambda name, data: None, {}))
