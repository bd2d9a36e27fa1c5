"""Items matched between parties that each have a folder of their own (O24)."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from protocols.errors import Refused
from protocols.wire.roles import Role
from secure_fgl.charters.party import new_tag_key
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.sites.process import open_process
from secure_fgl.store.finished_run import Run
from tests.secure_fgl.test_match_run import _config, _policy
from tests.sites.alike import check_models, check_result
from tests.sites.faulty import Dying
from tests.sites.one_process import played
from tests.sites.stage import Parties, assemble, gather


@pytest.fixture(autouse=True)
def _keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))


def made(folder: Path, mode: str) -> Parties:
    return assemble(_config(folder, _policy(mode=mode), users=users(mode)), folder / "parties")


def users(mode: str) -> int:
    return 6 if mode == "hmac" else 11  # in one cell, and in two


def clients(parties: Parties) -> list[str]:
    return [s for s in parties.folders if parties.kit(s).me.party.role is Role.CLIENT]


def bring(parties: Parties, sites: list[str]) -> None:
    """Make the key at the first client, and copy its file to the others, as operators do."""
    first, *others = sites
    key = new_tag_key(parties.folders[first])
    for site in others:
        shutil.copy2(key, parties.kit(site).folder)


def deaths(parties: Parties, *, killed: bool = False) -> dict[Role, int]:
    """Run to the end, and return how often the tag servers and the matcher were killed, if so."""
    roles = {name: parties.kit(name).me.party.role for name in parties.others if killed}
    dead = {n: role for n, role in roles.items() if role in (Role.TAG_SERVER, Role.MATCHER)}
    dying = Dying(parties, dead)
    played(parties, dying)
    return dict(Counter(dead[name] for name in dying.deaths))


@pytest.mark.parametrize("mode", [pytest.param("oprf", marks=pytest.mark.long), "hmac"])
def test_a_run_between_sites_is_the_run_in_memory(mode: str, tmp_path: Path) -> None:
    """Though whoever compares or makes tags is killed in every task, and asked again (O5)."""
    chosen = _config(tmp_path, _policy(mode=mode), users=users(mode))
    twin = Federation.from_config(chosen).run(tmp_path / "memory")
    parties = made(tmp_path, mode)
    if mode == "hmac":
        bring(parties, clients(parties))
    died = deaths(parties, killed=True)
    assert died[Role.MATCHER] >= 2 and (mode == "hmac") == (Role.TAG_SERVER not in died)
    assert twin.result["model_sha256"] is not None
    check_result(parties, twin)
    check_models(parties, twin)
    found = Run(gather(parties, tmp_path / "run")).verify()
    assert found.verdict == "self-consistent only", found.failed
    for folder in parties.folders.values():  # whatever its role
        assert Run(folder).verify().verdict == "own side holds", folder.name


def test_hmac_without_its_key_does_not_begin(tmp_path: Path) -> None:
    parties = made(tmp_path, "hmac")
    first = clients(parties)[0]
    with pytest.raises(UsageError, match=r"tags\.key is missing"):
        open_process(parties.kit(first))
    key = new_tag_key(parties.folders[first])
    with pytest.raises(UsageError, match="cannot be written"):
        new_tag_key(parties.folders[first])
    assert key.stat().st_mode & 0o777 == 0o600
    key.chmod(0o644)
    with pytest.raises(UsageError, match="read by other users"):
        open_process(parties.kit(first))
    key.chmod(0o600)
    for wrong in ("", "ab" * 31, "xy" * 32, "ab" * 33):
        key.write_text(wrong)
        with pytest.raises(UsageError, match="is not a key of ours"):
            open_process(parties.kit(first))
    matcher = next(s for s in parties.folders if parties.kit(s).me.party.role is Role.MATCHER)
    open_process(parties.kit(matcher)).close()  # who compares tags holds no key of theirs
    assert not (parties.kit(matcher).folder / "tags.key").exists()


@pytest.mark.long
def test_clients_with_different_keys_are_not_matched(tmp_path: Path) -> None:
    """Their canaries differ, and the matcher refuses the epoch (O24)."""
    parties = made(tmp_path, "hmac")
    last = clients(parties)[-1]
    bring(parties, clients(parties)[:-1])
    new_tag_key(parties.folders[last])
    with pytest.raises(Refused):
        deaths(parties)
