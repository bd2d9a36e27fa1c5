"""A server's configuration gives each party what the plan's routes need, and nobody else."""

from __future__ import annotations

import functools
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from protocols.plan.plan import Plan, roles_of
from protocols.sessions.engine import Delivery
from protocols.wire.envelope import Envelope
from protocols.wire.roster import AGGREGATOR_NAME, Identity
from secure_fgl.catalogue import algorithm_names
from secure_fgl.charters.broker import Broker, new_carrier_key
from secure_fgl.charters.charter import Charter
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.transports.broker.config import (
    MAX_PAYLOAD,
    Rights,
    message_limit,
    new_root,
    rights,
    server_config,
    write_config,
)
from secure_fgl.transports.broker.messages import HEAD_BYTES, PART, encode
from secure_fgl.transports.memory import MemoryTransport
from tests.laws.runs import config, mixes, policies_of


@functools.cache
def key_of(name: str, folder: Path) -> str:
    (folder / name).mkdir()
    return new_carrier_key(folder / name)


def charter_of(federation: Federation, folder: Path, root: str = "") -> Charter:
    """Return a charter that nobody signed."""
    plan, known = federation.plan(), roles_of(federation.plan(), federation.policy)
    return Charter.draw_up(
        [Identity.generate(name, role).party for name, role in known.items()],
        {name: key_of(name, folder) for name in known},
        broker=Broker(("tls://localhost:4222",), root),
        plan=plan,
        policy=federation.policy,
        config=federation.config,
        organisations={name: f"Organisation {name}" for name in known},
        spec=federation.own_spec(),
    )


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


def routes(plan: Plan, names: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
    """Return who sends to whom by the plan, each leg of it: all passes through the aggregator."""
    legs = set()
    everybody = [name for role in names.values() for name in role]
    for item in plan.items:
        senders = names[item.sender]
        receivers = everybody if item.recipient == "roster" else names[item.recipient]
        legs |= {(sender, AGGREGATOR_NAME) for sender in senders}
        legs |= {(AGGREGATOR_NAME, receiver) for receiver in receivers}
    return {(a, b) for a, b in legs if a != b}


@pytest.mark.parametrize("name", algorithm_names())
def test_rights_are_the_routes_of_the_plan(name: str, keys: Path) -> None:
    chosen = policies_of(name) + (("shuffled",) if mixes(name) else ())
    for policy in chosen:
        federation = Federation.from_config(config(name, policy))
        charter, plan = charter_of(federation, keys), federation.plan()
        known, given = roles_of(plan, federation.policy), rights(charter)
        to = {party: f"fgl.{charter.run}.to.{party}" for party in known}
        inbox = f"fgl.{charter.run}.replies.{AGGREGATOR_NAME}.>"
        others = sorted({*known} - {AGGREGATOR_NAME})
        assert given == {
            AGGREGATOR_NAME: Rights(tuple(to[party] for party in others), (inbox,), replies=False),
            **{party: Rights((), (to[party],), replies=True) for party in others},
        }
        names: dict[str, list[str]] = defaultdict(list)
        for party, role in known.items():
            names[role].append(party)
        wanted = routes(plan, names)
        may = {(AGGREGATOR_NAME, party) for party in others if to[party] in given[party].subscribe}
        may |= {(party, AGGREGATOR_NAME) for party in others if given[party].replies}
        assert wanted == may, "a route without its right, or a right without its route"
        _check_users(charter)


USER = re.compile(
    r"\{nkey: (U[A-Z2-7]{55}), permissions: \{publish: (.+?), subscribe: (\[.*?\])(.*)\}\} # (\S+)"
)


def _check_users(charter: Charter) -> None:
    """Hold the text of the configuration to the rights, party by party."""
    text = server_config([charter], Path("/broker"), listen="0.0.0.0:4222")
    users = {m[5]: m for m in USER.finditer(text)}
    assert {party: m[1] for party, m in users.items()} == dict(charter.carriers)
    assert text.count("nkey:") == len(charter.carriers)
    for party, right in rights(charter).items():
        _, publish, subscribe, replies, _ = users[party].groups()
        assert json.loads(subscribe) == [*right.subscribe]
        assert publish == (json.dumps([*right.publish]) if right.publish else '{deny: [">"]}')
        assert replies.strip(", ") == (
            'allow_responses: {max: 1, expires: "120s"}' if right.replies else ""
        )


@dataclass
class Sizes:
    """A transport that notes how large the messages are that would cross the broker.

    Attributes:
        largest: by party, of a request to it or of its reply.
    """

    inner: MemoryTransport
    largest: dict[str, int] = field(default_factory=dict)

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        answers = self.inner.exchange(deliveries)
        for to, envelopes in self._bundles(deliveries, answers).items():
            size = len(encode({"do": "envelopes", "seconds": 600.0}, envelopes))
            self.largest[to] = max(self.largest.get(to, 0), size)
        return answers

    def _bundles(self, asked: Sequence[Delivery], came: Sequence[Delivery]) -> dict[str, Any]:
        requests: dict[str, list[bytes]] = defaultdict(list)
        replies: dict[str, list[bytes]] = defaultdict(list)
        for delivery in asked:
            requests[delivery.to].append(bytes(delivery.data))
        for delivery in came:
            replies[Envelope.decode(delivery.data).header.sender].append(bytes(delivery.data))
        return {
            party: max((requests[party], replies[party]), key=lambda some: sum(map(len, some)))
            for party in {*requests, *replies}
        }


@pytest.mark.parametrize(
    ("name", "policy"),
    [("fed_avg", "masks"), ("fed_avg", "ckks"), ("fed_avg", "unsafe_plaintext"),
     ("fed_ego", "he"), ("fed_sage_plus", "masks"), ("fed_pub", "he")],
)  # fmt: skip
def test_the_limits_cover_what_runs_send(name: str, policy: str, tmp_path: Path) -> None:
    federation, taps = Federation.from_config(config(name, policy)), list[Sizes]()

    def connect(sessions: Mapping[str, Any]) -> Any:
        taps.append(Sizes(MemoryTransport(sessions)))
        return taps[0]

    federation.run(tmp_path / "run", connect=connect)
    plan, known = federation.plan(), roles_of(federation.plan(), federation.policy)
    assert {*taps[0].largest} == {*known} - {AGGREGATOR_NAME}
    for party, size in taps[0].largest.items():
        limit = message_limit(plan, known[party])
        # Twice what the plan lists, and a megabyte: it has to cover, and may not cover anything.
        assert size <= (limit - (1 << 20)) / 2 + 4096
        assert limit <= 64 * (1 << 20)


@pytest.fixture(scope="module")
def charters(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Charter]:
    federation = Federation.from_config(config("fed_avg", "he"))
    places = keys, tmp_path_factory.mktemp("others")
    return [charter_of(federation, place) for place in places]


def test_nothing_is_stored_administered_or_monitored(charters: list[Charter]) -> None:
    text = server_config(charters, Path("/broker"), listen="0.0.0.0:4222")
    lines = [line.strip() for line in text.splitlines()]
    for word in ("jetstream", "http", "https", "monitor", "system_account", "$SYS", "websocket",
                 "mqtt", "leafnodes", "cluster", "no_auth_user", "password", "token", "resolver",
                 "exports", "imports", "allow_non_tls", "default_permissions",
                 "insecure"):  # fmt: skip
        assert not re.search(rf"(?i){re.escape(word)}", text), word
    assert [line for line in lines if line.startswith("listen:")] == ['listen: "0.0.0.0:4222"']
    assert f"max_payload: {PART + HEAD_BYTES}" in lines
    assert MAX_PAYLOAD < 8 << 20
    for wanted in ('min_version: "1.3"', 'cert_file: "/broker/server.pem"',
                   'key_file: "/broker/server.key"', "max_subscriptions: 4096",
                   "handshake_first: true",
                   f"max_pending: {64 * MAX_PAYLOAD}", 'write_deadline: "60s"'):  # fmt: skip
        assert wanted in lines, wanted
    accounts = re.findall(r"(?m)^  ([0-9a-f]{32}) \{$", text)
    assert accounts == [charter.run for charter in charters]


def test_runs_that_share_a_key_are_one_account_since_a_server_knows_a_key_once(
    charters: list[Charter], keys: Path
) -> None:
    federation = Federation.from_config(config("fed_avg", "masks"))
    second, third = (charter_of(federation, keys) for _ in range(2))
    of = [charters[0], charters[1], second, third]
    text = server_config(of, Path("/broker"), listen="0.0.0.0:4222")
    assert {*re.findall(r"(?m)^  ([0-9a-f]{32}) \{$", text)} == {c.run for c in charters}
    users = {m[1]: m for m in USER.finditer(text)}
    assert text.count("nkey:") == len(users) == sum(len(c.carriers) for c in charters)
    for party, key in second.carriers.items():
        given = [rights(c)[party] for c in (charters[0], second, third)]
        assert json.loads(users[key][3]) == [s for right in given for s in right.subscribe]
        if party == AGGREGATOR_NAME:
            assert json.loads(users[key][2]) == [s for right in given for s in right.publish]


def test_the_certificate_is_of_the_root_and_for_the_hosts(keys: Path, tmp_path: Path) -> None:
    root = new_root(tmp_path / "broker")
    assert new_root(tmp_path / "broker") == root, "a root that is there stays"
    federation = Federation.from_config(config("fed_avg", "masks"))
    drawn = charter_of(federation, keys, root)
    named = Broker(("tls://fl.example.org:4222", "tls://[::1]:4222", "tls://10.0.0.1:1"), root)
    charter = replace(drawn, broker=named)
    path = write_config([charter], tmp_path / "broker", listen="0.0.0.0:4222")
    assert {f.name: f.stat().st_mode & 0o777 for f in path.parent.iterdir()} == {
        "nats.conf": 0o600, "root.pem": 0o644, "root.key": 0o600, "server.pem": 0o644,
        "server.key": 0o600,
    }  # fmt: skip
    made = x509.load_pem_x509_certificate((path.parent / "server.pem").read_bytes())
    made.verify_directly_issued_by(x509.load_pem_x509_certificate(root.encode()))
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org"]
    assert {*map(str, names.get_values_for_type(x509.IPAddress))} == {"::1", "10.0.0.1"}
    with pytest.raises(UsageError, match="another root"):
        new_root(tmp_path / "other")
        write_config([charter], tmp_path / "other", listen="0.0.0.0:4222")
    with pytest.raises(UsageError, match="is missing"):  # no root: the operator's certificate
        write_config([replace(charter, broker=Broker(named.urls))], tmp_path / "no", listen="x:1")
