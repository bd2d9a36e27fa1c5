"""A cluster of three servers, one of which is killed, and a leaf node at a site."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters.broker import CARRIER, KEY_FILE, new_carrier_key
from secure_fgl.transports.broker.config import write_leaf
from tests.broker_net.federation import PARTIES, Federation
from tests.broker_net.hosts import Lines, needed

_STRANGER = """
import socket, ssl, sys
plain, context = socket.create_connection((sys.argv[1], 6222)), ssl.create_default_context()
context.load_verify_locations(sys.argv[2])
print("answered", context.wrap_socket(plain, server_hostname=sys.argv[1]).recv(4096))
"""  # it has no certificate to show, as each server of the cluster has


def test_a_killed_server_of_three_costs_at_most_the_exchange(tmp_path: Path) -> None:
    needed()
    servers = ["north", "south", "west"]
    with Lines([*servers, *PARTIES]) as lines:
        run = Federation(lines, tmp_path, servers, rounds=3, deadline=60)
        for server in servers:
            run.serve(server, run.config(server))
        given, log = (
            [lines.addresses["north"], str(tmp_path / "broker" / "root.pem")],
            tmp_path / "s",
        )
        lines.start("client-1", [sys.executable, "-c", _STRANGER, *given], log).wait(30)
        assert "CERTIFICATE_REQUIRED" in log.read_text()
        run.start()
        run.until(lambda: len(run.survivors()) >= 1)
        (killed,) = lines.peers(AGGREGATOR_NAME)
        os.killpg(run.running[killed].pid, signal.SIGKILL)
        run.until_over()
    assert run.survivors() == [5, 5, 5, 5]
    assert run.parties.result()["lost_rounds"] == []
    assert "is made anew" in (tmp_path / "aggregator.log").read_text()


def _spies(
    run: Federation, host: str, party: str, key: Path, hears: Sequence[str], says: Sequence[str]
) -> Path:
    folder, log = run.parties.folders[party] / CARRIER, run.base / f"spy-{host}-{party}.log"
    given = [str(folder), run.parties.charter.run, str(key), json.dumps(hears), json.dumps(says)]
    run.lines.start(host, [sys.executable, "-m", "tests.broker_net.spy", *given], log)
    return log


def _heard(log: Path) -> set[tuple[str, bool]]:
    lines = [line for line in log.read_text().splitlines() if line.startswith("[")]
    return {tuple(json.loads(line)) for line in lines}


def test_a_leaf_node_does_what_its_party_may_and_nothing_else(tmp_path: Path) -> None:
    """Its operator may write any configuration: here one more user, who may do everything."""
    needed()
    with Lines(["hub", "leaf", *PARTIES]) as lines:
        lines.apart.add(frozenset(("client-1", "hub")))
        run = Federation(lines, tmp_path, ["hub"], rounds=2, deadline=60)
        run.serve("hub", run.config("hub", behind=["client-1"]))
        folders, charter = run.parties.folders, run.parties.charter
        leaf = write_leaf(
            folders["client-1"], charter, "client-1", tmp_path / "leaf",
            hubs=[run.at("hub", 7422)], listen=run.at("leaf"),
        )  # fmt: skip
        public = new_carrier_key(tmp_path)
        text = leaf.read_text().replace("users: [", f"users: [ {{nkey: {public}}}")
        leaf.write_text(text)
        run.serve("leaf", leaf)
        to, replies = f"fgl.{charter.run}.to", f"fgl.{charter.run}.replies.{AGGREGATOR_NAME}"
        own, others = f"{replies}.x.client-1.x", [f"{replies}.x.client-2.x", f"{replies}.x"]
        strange = _spies(
            run, "leaf", "client-1", tmp_path / CARRIER / KEY_FILE,
            [">", f"{to}.client-2", f"{to}.*", f"{replies}.>", "$SYS.>"],
            [own, *others, f"{to}.client-2"],
        )  # fmt: skip
        at_hub = {
            name: _spies(run, name, name, folders[name] / CARRIER / KEY_FILE, hears, [])
            for name, hears in {
                "client-2": [f"{to}.client-2"],
                AGGREGATOR_NAME: [f"{replies}.>", own, *others],
            }.items()
        }  # fmt: skip
        run.until(lambda: (own, True) in _heard(at_hub[AGGREGATOR_NAME]))
        run.start()
        run.until_over()
    assert run.survivors() == [5, 5, 5]
    assert {subject for subject, word in _heard(at_hub[AGGREGATOR_NAME]) if word} == {own}
    assert _heard(at_hub["client-2"]) == {(f"{to}.client-2", False)}
    crossed = {subject for subject, word in _heard(strange) if not word}
    assert f"{to}.client-1" in crossed
    replied = {subject for subject in crossed if subject.startswith(replies)}
    assert crossed - replied == {f"{to}.client-1"}
    assert all(".client-1." in subject for subject in replied)
