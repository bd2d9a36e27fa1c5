"""Connects with somebody's key, hears and says what it can, and prints what it heard.

``python -m tests.broker_net.spy CONNECTIONS RUN SEED HEARS SAYS``, the last two in JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from secure_fgl.transports.broker.carrier import Connection, connected

WORD = b"a word of the spy's"


async def spy(folder: Path, run: str, seed: Path, hears: list[str], says: list[str]) -> None:
    to, key = Connection.load(folder, run), seed.read_text().strip()
    client = await connected(to, key, note=lambda line: None)

    async def came(message: Any) -> None:
        print(json.dumps([message.subject, message.data == WORD]), flush=True)

    for subject in hears:
        await client.subscribe(subject, cb=came)
    while True:
        for subject in says:
            await client.publish(subject, WORD)
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    _, at, name, key_file, heard, said = sys.argv
    asyncio.run(spy(Path(at), name, Path(key_file), json.loads(heard), json.loads(said)))
