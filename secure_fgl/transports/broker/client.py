"""The client of NATS as a carrier needs it: what a hostile server or site sends must not stop it.

Each change closes an attack that was tried: a header that cannot be read ended the loop that reads
(one site made the aggregator deaf); a server's list of other servers led a carrier into its own
network; a message of any length was kept; text of the server reached a terminal as it was.
"""

from __future__ import annotations

from typing import Any

from nats.aio.client import Client
from nats.errors import ProtocolError

from secure_fgl.transports.broker.messages import HEAD_BYTES, PART

__all__ = ["BrokerClient", "printable"]

_LONGEST = 200  # characters of a server's own words
_MOST = PART + HEAD_BYTES + 4096  # bytes of a message with its headers


class BrokerClient(Client):
    """`nats.aio.client.Client` with these changes."""

    def __init__(self) -> None:
        super().__init__()
        parse = self._ps.parse

        async def limited(data: bytes = b"") -> None:
            try:
                await parse(data)
            except (ProtocolError, OSError):
                raise
            except Exception as error:  # the loop would end, and nobody would know
                raise ProtocolError from error
            if self._ps.needed > _MOST:
                raise ProtocolError

        self._ps.parse = limited  # type: ignore[method-assign]

    async def _process_headers(self, headers: Any) -> dict[str, str] | None:
        try:
            return await super()._process_headers(headers)
        except (ValueError, IndexError):
            return None

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        known = {name: value for name, value in info.items() if name != "connect_urls"}
        await super()._process_info(known, initial_connection)


def printable(text: object) -> str:
    """Return a server's own words as one short line that no terminal obeys."""
    line = "".join(c if c.isprintable() else " " for c in str(text))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."
