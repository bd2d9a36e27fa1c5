"""The aggregator's own process: it drives the run, and a relay in the server's job carries for it.

The relay calls, as at every site, and then is told what to carry. When a job ends, whatever ended
it, the session waits for the next job's relay and sends the very bytes again: a killed server costs
no round.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from protocols.errors import Refused
from protocols.roles.aggregator import AggregatorSession
from secure_fgl.store.files import Folder
from secure_fgl.transports.nvflare.party import PartyKit
from secure_fgl.transports.nvflare.party_process import PartyProcess, conduct
from secure_fgl.transports.nvflare.site import channel
from secure_fgl.transports.nvflare.site.codes import CARRY, JOB, OVER, Code, Heard
from secure_fgl.transports.nvflare.site.control import Control
from secure_fgl.transports.nvflare.site.patience import SiteTransport

__all__ = ["RelayCarrier", "conduct_run", "end_run"]

_DEADLINE, _SHORTEST, _LONGEST = 600.0, 1.0, 7 * 86400.0  # seconds
_SLACK_SECONDS = 60.0  # beyond an exchange's own, before a relay counts as lost


class RelayCarrier:
    """Carries bundles through whichever relay called last.

    Args:
        listener: where relays call.
        users: whose processes may.
        control: says when to wait no longer.
        run: of which a relay's job must be.
    """

    def __init__(
        self, listener: socket.socket, users: Collection[int], control: Control, run: str
    ) -> None:
        self._listener, self._users, self._control = listener, users, control
        self._run = run
        self._relay: socket.socket | None = None
        self._allowed = _DEADLINE

    def allowed(self) -> float:
        """Return how many seconds an exchange may take, as the job says that runs or comes next.

        Where none runs it is waited for: an office may be up for days before its job is there, and
        no exchange's time passes meanwhile.

        Raises:
            Stopped: this process is to end.
        """
        if self._relay is None:
            self._called()
        return self._allowed

    def carry(
        self,
        name: str,
        bundles: Mapping[str, Sequence[bytes]],
        seconds: float,
        unhurried: Collection[str],
    ) -> dict[str, Heard]:
        """Have the relay carry them, and the next job's relay if this one's is lost.

        Raises:
            Stopped: this process is to end.
        """
        sites = [[site, len(data)] for site, data in bundles.items()]
        head = {"do": CARRY, "task": name, "sites": sites, "seconds": seconds}
        blobs = [blob for data in bundles.values() for blob in data]
        while True:
            if self._control.ends():  # a relay that answers at once would never be asked to wait
                raise channel.Stopped
            relay = self._relay or self._called()
            try:
                told = {**head, "unhurried": sorted(unhurried)}
                channel.send(relay, told, blobs, stopped=self._control.ends)
                found, answers = channel.receive(
                    relay, stopped=self._control.ends, seconds=seconds + _SLACK_SECONDS
                )
                return _heard(found, answers, bundles)
            except (channel.Broken, TimeoutError, ValueError, TypeError):
                self.hang_up()

    def over(self, why: str = "") -> None:
        """Tell the relay that its job is over, or why the run stopped, by an error's type."""
        if self._relay is not None:
            with contextlib.suppress(channel.Broken):
                channel.send(self._relay, {"do": OVER, "why": why})
        self.hang_up()

    def hang_up(self) -> None:
        """Forget the relay."""
        if self._relay is not None:
            self._relay.close()
        self._relay = None

    def _called(self) -> socket.socket:
        """Wait until a job's relay calls."""
        while True:
            self._control.wait(self._listener)
            if self._control.ends():
                raise channel.Stopped
            if (relay := channel.accepted(self._listener, self._users)) is None:
                continue
            with contextlib.suppress(channel.Broken, TimeoutError):
                head, _ = channel.receive(
                    relay, stopped=self._control.ends, seconds=channel.GREETING_SECONDS
                )
                if head.get("do") == JOB and head.get("run") == self._run:
                    told = head.get("deadline")
                    if isinstance(told, float) and _SHORTEST <= told <= _LONGEST:
                        self._allowed = told
                    self._relay = relay
                    return relay
            relay.close()


def _heard(
    head: Mapping[str, Any], blobs: Sequence[bytes], asked: Collection[str]
) -> dict[str, Heard]:
    """Return what a relay says came; raises ValueError or TypeError for what it cannot say."""
    found, rest = dict[str, Heard](), list(blobs)
    for site, code, count in head.get("found", ((),)):
        if site not in asked or site in found or type(count) is not int or count < 0:
            raise ValueError
        found[site] = Heard(Code(code), rest[:count])
        del rest[:count]
    if rest:
        raise ValueError
    return found


def conduct_run(kit: PartyKit, process: PartyProcess | None, carrier: RelayCarrier) -> None:
    """Run all rounds, or those that are left, and tell all sites that the run is over.

    Args:
        kit: the aggregator's.
        process: its session; None where all rounds are done.
        carrier: to the relay.

    Raises:
        Stopped: this process is to end.
        Refused: a party refused: it is out for good, and the run with it.
        and what else `conduct` raises, after the relay was told its type.
    """
    session = process.session if process is not None else None
    heard = session.heads.heard if isinstance(session, AggregatorSession) else ()
    transport = SiteTransport.of(kit.charter, carrier, deadline=carrier.allowed, heard=heard)
    try:
        if process is not None:
            _conduct(kit, process, transport)
        end_run(kit, transport)
        carrier.over()
    except channel.Stopped:
        raise
    except Exception as error:
        carrier.over(type(error).__name__)
        raise
    finally:
        carrier.hang_up()


def _conduct(kit: PartyKit, process: PartyProcess, transport: SiteTransport) -> None:
    try:
        conduct(process, transport)
    except Refused:
        process.close()
        transport.end(kit.charter.end(kit.me.signing))
        raise
    finally:
        _note_times(kit, transport.seconds)


def end_run(kit: PartyKit, transport: SiteTransport) -> None:
    """Tell all sites that the run is over."""
    transport.end(kit.charter.end(kit.me.signing))


def _note_times(kit: PartyKit, seconds: Sequence[float]) -> None:
    """Write how long each exchange took, for people who plan a deployment."""
    lines = "".join(f"{value:.4f}\n" for value in seconds)
    Folder(kit.run_folder).append("exchanges.txt", lines.encode())
