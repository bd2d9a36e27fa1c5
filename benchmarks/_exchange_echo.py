"""Processes that send back what they are given: a party behind its carrier, or a bare client."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Any

from secure_fgl.transports.broker import channel
from secure_fgl.transports.broker.carrier import KEY_FILE, Connection, connected
from secure_fgl.transports.broker.messages import decode, encode


def party(place: Path) -> None:
    """Answer at a party's socket."""
    with channel.bound(place) as listener:
        listener.listen(8)
        while True:
            connection = channel.accept(listener, {os.geteuid()})
            with contextlib.suppress(channel.Gone):
                while connection is not None:
                    _, envelopes = decode(channel.receive(connection))
                    channel.send(connection, encode({"code": "done"}, envelopes))


async def bare(folder: Path, run: str) -> None:
    """Answer as a plain client of NATS."""
    to = Connection.load(folder, run)
    client = await connected(to, (folder / KEY_FILE).read_text().strip(), note=lambda line: None)

    async def came(message: Any) -> None:
        await message.respond(message.data)

    await client.subscribe(to.listens, cb=came)
    await asyncio.Event().wait()


if __name__ == "__main__":
    kind, where, *rest = sys.argv[1:]
    if kind == "party":
        party(Path(where))
    asyncio.run(bare(Path(where), rest[0]))
