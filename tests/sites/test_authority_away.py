"""A key authority that is away for a whole deadline: the run stops, and goes on once it is back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from protocols.errors import RemoteProtocolError
from protocols.wire.envelope import Envelope
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.federation import Federation
from secure_fgl.sites.process import conduct, open_process
from secure_fgl.transports.broker.codes import TASK, Code
from secure_fgl.transports.nvflare import wire
from tests.sites.faulty import Dying, Sums
from tests.sites.stage import SERVER_SITE, assemble, banks
from tests.sites.test_engine import seated, transport
from tests.sites.test_site_process import AUTHORITY


class Away(Dying):
    """The authority does not answer what it is asked to open in round 2, twice."""

    missed: int = 0

    def _serve(self, site: str, name: str, envelopes: list[bytes]) -> Any:
        if site == AUTHORITY and name == TASK and self.missed < 2:
            header = Envelope.decode(envelopes[0]).header
            if header.round == 2 and header.item.endswith(".open"):
                self.missed += 1
                return wire.say(Code.FAILED)  # nobody waits for it
        return super()._serve(site, name, envelopes)


def test_who_goes_on_with_a_run_asks_for_the_total_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = banks(rounds=3, policy="he")
    twin = Federation.from_config(config).run(tmp_path / "memory")
    sums, parties = Sums.watched(monkeypatch), assemble(config, tmp_path / "parties")
    away = Away(parties, seated(parties, monkeypatch), ())
    sites = {k: v for k, v in parties.charter.sites.items() if k != AGGREGATOR_NAME}
    carried = transport(away, sites, deadline=60.0, plan=parties.charter.plan)
    for _ in range(2):  # it stays away, and the session that goes on stops in the same way
        process = open_process(parties.kit(SERVER_SITE))
        with pytest.raises(RemoteProtocolError, match="did not open the total"):
            conduct(process, carried)
        process.files.close()
    conduct(open_process(parties.kit(SERVER_SITE)), carried)
    carried.end(parties.end())
    assert away.missed == 2 and parties.result()["lost_rounds"] == []
    assert parties.result()["model_sha256"] == twin.model_sha256
    assert set(sums.check(smallest=5)) == {5}
