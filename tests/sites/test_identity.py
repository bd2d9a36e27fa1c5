"""A party's keys under a passphrase: made, opened, refused, and never written down in clear."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import Result

from crypto import aead
from crypto.errors import InvalidSeal
from protocols.wire.roles import Role
from protocols.wire.roster import Identity
from secure_fgl.charters import identity_file
from secure_fgl.charters.broker import new_carrier_key
from secure_fgl.charters.facts import Facts, Renewal
from secure_fgl.charters.identity_file import (
    Passphrase,
    is_locked,
    load_identity,
    name_and_role,
    new_identity,
)
from secure_fgl.errors import UsageError
from tests.secure_fgl.cli_tools import invoke

WORDS = "six random words from a list"


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (identity_file.FILE_VARIABLE, "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "secret"
    file.write_text(WORDS + "\n")
    file.chmod(0o600)
    return file


def test_a_secret_opens_under_its_passphrase_and_for_what_it_was_locked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aead, "_COST", 1 << 4)
    locked = aead.lock_under(b"one", b"info", b"seed")
    assert aead.unlock_under(b"one", b"info", locked) == b"seed"
    assert aead.lock_under(b"one", b"info", b"seed") != locked  # a salt of its own
    changed = locked[:-1] + bytes([locked[-1] ^ 1])
    for wrong, info, data in (
        (b"two", b"info", locked),
        (b"one", b"other", locked),
        (b"one", b"info", changed),
        (b"one", b"info", locked[:20]),
        (b"one", b"info", b""),
    ):
        with pytest.raises(InvalidSeal):
            aead.unlock_under(wrong, info, data)
    monkeypatch.setattr(aead, "_COST", 1 << 5)  # the cost is no part of what is carried
    with pytest.raises(InvalidSeal):
        aead.unlock_under(b"one", b"info", locked)


def test_a_guess_costs_what_the_format_says() -> None:
    assert (aead._COST, aead._BLOCK, aead._LANES) == (131_072, 8, 1)


def test_o26_keys_under_a_passphrase_open_with_it_alone(
    secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "party"
    made = invoke(
        "site", "new", folder, "--name", "north", "--organisation", "North", "--role", "client",
        "--passphrase-file", secret,
    )  # fmt: skip
    assert made.exit_code == 0, made.stderr
    text = (folder / "identity.json").read_text()
    assert set(json.loads(text)) == {"name", "role", "version", "locked"}
    assert (folder / "identity.json").stat().st_mode & 0o777 == 0o600
    assert is_locked(folder) and name_and_role(folder) == ("north", Role.CLIENT)
    with pytest.raises(UsageError, match="not at hand") as caught:  # and nobody is asked
        load_identity(folder)
    assert identity_file.FILE_VARIABLE in caught.value.fix

    monkeypatch.setenv(identity_file.FILE_VARIABLE, str(secret))
    me = load_identity(folder)
    facts = json.loads((folder / "north.facts.json").read_text())
    assert facts["verify"] == me.party.verify.raw.hex()
    for name, wrong in (("role", "relay"), ("name", "south")):  # bound, though they stand in clear
        (folder / "identity.json").write_text(json.dumps({**json.loads(text), name: wrong}))
        with pytest.raises(UsageError, match="does not open"):
            load_identity(folder)
    (folder / "identity.json").write_text(text)
    secret.write_text("another passphrase")
    with pytest.raises(UsageError, match="does not open") as caught:
        load_identity(folder)
    assert "not its passphrase" in caught.value.why
    assert "another passphrase" not in str(caught.value)


def test_a_passphrase_comes_from_a_file_from_systemd_or_from_a_terminal(
    secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_file = identity_file.from_file(secret).reveal()
    assert from_file == WORDS.encode() and WORDS not in repr(identity_file.from_file(secret))
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / identity_file.CREDENTIAL).write_text("what systemd loaded")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    assert identity_file.of_this_site("x").reveal() == b"what systemd loaded"
    monkeypatch.setenv(identity_file.FILE_VARIABLE, str(secret))
    assert identity_file.of_this_site("x").reveal() == WORDS.encode()
    monkeypatch.delenv(identity_file.FILE_VARIABLE)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("getpass.getpass", answers("e\u0301ine lange Wendung"))
    assert identity_file.of_this_site("x").reveal() == "éine lange Wendung".encode()
    monkeypatch.setattr("getpass.getpass", answers(WORDS, WORDS))
    assert identity_file.asked_twice("x").reveal() == WORDS.encode()
    monkeypatch.setattr("getpass.getpass", answers(WORDS, WORDS + "."))
    with pytest.raises(UsageError, match="differently"):
        identity_file.asked_twice("x")


def answers(*said: str) -> Callable[[str], str]:
    left = list(said)
    return lambda _: left.pop(0)


@pytest.mark.parametrize(
    "text", ["", "too short", "x" * 2000, "two lines\nof it is many", "\0" * 20]
)
def test_what_is_no_passphrase_is_refused_without_a_word_of_it(text: str, secret: Path) -> None:
    secret.write_text(text)
    with pytest.raises(UsageError) as caught:
        identity_file.from_file(secret)
    assert not text or text not in str(caught.value)


def test_a_passphrase_that_others_can_read_is_not_used(secret: Path) -> None:
    secret.chmod(0o640)
    with pytest.raises(UsageError, match="other users"):
        identity_file.from_file(secret)
    with pytest.raises(UsageError, match="cannot be read"):
        identity_file.from_file(secret.parent / "nowhere")


def test_keys_without_a_passphrase_ask_for_none(tmp_path: Path) -> None:
    made = new_identity(tmp_path, "north", Role.CLIENT)
    assert load_identity(tmp_path).party == made and not is_locked(tmp_path)
    locked = new_identity(tmp_path / "x", "north", Role.CLIENT, Passphrase(WORDS))
    assert locked != made


# --- the next identity -----------------------------------------------------------------------


@pytest.fixture
def north(tmp_path: Path) -> Path:
    folder = tmp_path / "north"
    made = invoke("site", "new", folder, *NORTH)
    assert made.exit_code == 0, made.stderr
    return folder


NORTH = ("--name", "hospital-north", "--organisation", "Hospital North", "--role", "client")
OTHERS = ("hospital-east", "hospital-south", "hospital-west")


def facts_of(folder: Path) -> Facts:
    return Facts.decode((folder / "hospital-north.facts.json").read_bytes())


def test_the_next_identity_is_signed_by_the_last(north: Path) -> None:
    first, last = facts_of(north), load_identity(north)
    shown = invoke("site", "renew", north)
    assert shown.exit_code == 0, shown.stderr
    second, me = facts_of(north), load_identity(north)
    assert me.party == second.party != first.party and second.organisation == first.organisation
    assert second.last_fingerprint == first.fingerprint != second.fingerprint
    assert first.fingerprint in shown.stdout and second.fingerprint in shown.stdout
    assert (north / "identity.json").stat().st_mode & 0o777 == 0o600
    third_party = Identity.generate("hospital-north", Role.CLIENT)
    assert second.renewal is not None and second.carrier == first.carrier
    beside = (second.organisation, second.carrier)
    another = new_carrier_key(north.parent)
    for forged in (
        Renewal(last.party, second.renewal.signature[:-1] + b"x"),
        Renewal(third_party.party, second.renewal.signature),
        replace(Renewal.of(third_party, second.party, *beside), last=last.party),
        Renewal.of(last, third_party.party, *beside),
        Renewal.of(last, second.party, "Hospital South", second.carrier),
        Renewal.of(last, second.party, second.organisation, another),
        # One key of the last identity alone: its fingerprint, by which it is revoked, is another.
        Renewal(replace(last.party, seal=third_party.party.seal), second.renewal.signature),
    ):
        said = Facts(second.party, *beside, forged)
        with pytest.raises(UsageError, match="cannot be read"):
            Facts.decode(said.encode())
    assert invoke("site", "renew", north).exit_code == 0  # and so on
    assert facts_of(north).last_fingerprint == second.fingerprint


def test_keys_are_renewed_only_when_nothing_needs_them(north: Path) -> None:
    before = (north / "identity.json").read_bytes()
    place = north / "runs" / ("ab" * 16)
    (place / "run" / "heads").mkdir(parents=True)
    (place / "run" / "roster.json").write_text("{}")
    refused = invoke("site", "renew", north)
    assert refused.exit_code == 2 and "is not over" in " ".join(refused.stderr.split())
    (place / "run" / "heads" / "hospital-north.checkpoint").touch()
    with (place / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        refused = invoke("site", "renew", north)
        assert refused.exit_code == 2 and "at work" in " ".join(refused.stderr.split())
    assert (north / "identity.json").read_bytes() == before
    assert invoke("site", "renew", north).exit_code == 0


def test_locked_keys_are_not_renewed_in_clear(
    secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "north"
    assert invoke("site", "new", folder, *NORTH, "--passphrase-file", secret).exit_code == 0
    monkeypatch.setenv(identity_file.FILE_VARIABLE, str(secret))
    refused = invoke("site", "renew", folder)
    assert refused.exit_code == 2 and "would not be" in " ".join(refused.stderr.split())
    done = invoke("site", "renew", folder, "--passphrase-file", secret)
    assert done.exit_code == 0 and is_locked(folder)
    assert load_identity(folder).party == facts_of(folder).party


def test_a_revoked_identity_and_what_it_signed_are_in_no_charter(
    north: Path, tmp_path: Path
) -> None:
    pilot = tmp_path / "pilot"
    assert invoke("init", pilot, "--pilot").exit_code == 0
    consortium = pilot / "consortium.yaml"
    last = facts_of(north).fingerprint
    announced = [north / "hospital-north.facts.json"]
    for name in (*OTHERS, "key-authority", "aggregator"):
        role = "client" if name in OTHERS else name
        whose = {"key-authority": "Notary", "aggregator": "Coordinating Office"}.get(
            name, name.replace("-", " ").title()
        )
        more = ("--name", name, "--organisation", whose, "--role", role)
        assert invoke("site", "new", tmp_path / name, *more).exit_code == 0
        announced.append(tmp_path / name / f"{name}.facts.json")

    def draw(out: str, text: str = "revoked: []") -> Result:
        listed = pilot / f"{out}.yaml"
        listed.write_text(consortium.read_text().replace("revoked: []", text))
        return invoke(
            "charter", "draw", pilot / "config.yaml", *announced, "--server", "fl.example.org",
            "--consortium", listed, "--out", tmp_path / out,
        )  # fmt: skip

    revoked = f"revoked: ['{last}']\n"
    refused = draw("first", revoked)
    assert refused.exit_code == 2 and "identity is revoked" in " ".join(refused.stderr.split())
    assert invoke("site", "renew", north).exit_code == 0
    refused = draw("second", revoked)
    assert refused.exit_code == 2 and "signed by one that is" in " ".join(refused.stderr.split())
    drawn = draw("third")
    assert drawn.exit_code == 0 and f"signed by those of {last}" in drawn.stderr
    badly = draw("fourth", "revoked: [abcd]\n")
    assert badly.exit_code == 2 and "revoked" in badly.stderr
