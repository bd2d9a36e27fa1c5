"""A whole run in one process: each party's own code of its process in a thread, over its socket.

The relays (`Seat`, `Conductor`), the sockets, and what a party's process does (`session.run`) are
those of real sites. Left out is NVFlare's network, of which only the encoding is there, and that
parties are processes of their own.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from secure_fgl.charters.party import PartyKit
from secure_fgl.sites.control import Control
from secure_fgl.sites.process import open_process
from secure_fgl.transports.broker import channel, session
from secure_fgl.transports.nvflare import executor
from secure_fgl.transports.nvflare.controller import Conductor
from secure_fgl.transports.nvflare.executor import Seat
from tests.sites.stage import SERVER_SITE, Parties
from tests.sites.test_late_requests import Network

ME = frozenset({os.geteuid()})
DEADLINE, PATIENCE = 240.0, 60.0
"""Of an exchange, and of a thread once the run is over; seconds. Neither is reached."""

_HERE = threading.local()


class _Surroundings:
    """The environment of the site's process in whose place a thread is at work."""

    def get(self, name: str) -> str | None:
        return _HERE.place if name == channel.SOCKET_VARIABLE else os.environ.get(name)


class Placed(Seat):
    """A site's relay, which finds its party where its own environment says."""

    def __init__(self, run: str, party: Path) -> None:
        super().__init__(run)
        self._place = str(party.absolute() / channel.SOCKET)

    def _work(self, name: str, carried: Shareable, abort: Signal) -> Any:
        inner = super()._work(name, carried, abort)

        def work(taken: Callable[[], None]) -> Any:
            _HERE.place = self._place
            return inner(taken)

        return work


def _party(kit: PartyKit, channel_to: socket.socket, codes: dict[str, int | BaseException]) -> None:
    place = channel.of_run(kit.party.absolute() / channel.SOCKET, kit.charter.run)
    try:
        codes[kit.name] = session.run(kit, place, ME, Control(channel_to))
    except BaseException as error:  # a thread's end tells nobody
        codes[kit.name] = error


def played(
    parties: Parties,
    patch: pytest.MonkeyPatch,
    does: Callable[[Network, str, Shareable], Shareable | None] = Network.deliver,
) -> dict[str, int | BaseException]:
    """Play a run to its end, and return how each party's process ended, by the party's name.

    Args:
        parties: who joined a charter; nobody of them is at work.
        patch: what stands for the environment of several processes.
        does: what becomes of a request on its way to a site; None: nothing comes back.
    """
    run, kits = parties.charter.run, {site: parties.kit(site) for site in parties.folders}
    # Workers are forked, so before there are threads.
    opened = {kit.name: open_process(kit) for kit in kits.values()}
    files = [process.files for process in opened.values()]
    patch.setattr(session, "open_process", lambda kit: opened.pop(kit.name))
    patch.setattr(executor, "os", SimpleNamespace(environ=_Surroundings()))
    server = parties.folders[SERVER_SITE].absolute() / channel.SOCKET
    patch.setenv(channel.SOCKET_VARIABLE, str(server))
    seats: Any = {site: Placed(run, kit.party) for site, kit in kits.items() if site != SERVER_SITE}
    network, abort, codes = Network(seats, does), Signal(), dict[str, int | BaseException]()
    conductor, panics = Conductor(run, DEADLINE), list[str]()
    conductor.system_panic = lambda why, _: panics.append(why)  # type: ignore[method-assign]
    context: Any = SimpleNamespace(get_engine=lambda: network)
    relay = threading.Thread(target=conductor.control_flow, args=(abort, context))
    with contextlib.ExitStack() as ends:
        pairs = {site: socket.socketpair() for site in kits}
        for end in (end for pair in pairs.values() for end in pair):
            ends.enter_context(end)
        threads = [
            threading.Thread(target=_party, args=(kits[site], pairs[site][1], codes))
            for site in seats
        ]
        for thread in (*threads, relay):
            thread.start()
        try:
            _party(kits[SERVER_SITE], pairs[SERVER_SITE][1], codes)
        finally:
            if codes.get(kits[SERVER_SITE].name) != 0:  # nobody is told of an end
                for ours, _ in pairs.values():
                    ours.shutdown(socket.SHUT_WR)
            for thread in threads:
                thread.join(PATIENCE)
            abort.trigger("over")
            relay.join(PATIENCE)
            for one in files:  # of who did not end in order, and with them its worker
                one.close()
    assert not any(thread.is_alive() for thread in (*threads, relay))
    assert panics == []
    return codes
