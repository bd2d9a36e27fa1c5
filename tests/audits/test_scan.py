"""What is a site's own is found where it must not be, and is never shown."""

from __future__ import annotations

import base64
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audits.scanning.search import search
from audits.scanning.sought import Sought
from secure_fgl.errors import SiteData
from secure_fgl.scanning import refuse_found, seek_tables
from secure_fgl.store.sides.places import place_of
from tests.audits.forging import without_models
from tests.audits.party_tools import Federation, play
from tests.audits.toy_run import Toy, save
from tests.secure_fgl.cli_tools import invoke

NODES = """id,label,age,income,balance,weight,note
mrn-20417,fine,34,2.913,1077.25,61.4,"called twice about the broken lift, would rather not"
mrn-20981,risky,51,1.207,12.5,80.1,
Ünal Sœur 77,fine,42,3.311,940.75,72.9,none
7,risky,29,2.118,15.25,55.3,none
"""
X = np.arange(24, dtype=np.float32).reshape(4, 6) * 1.37 + 0.21
SEED = "5ec2e7" * 10


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "north"
    folder.mkdir()
    (folder / "nodes.csv").write_text(NODES, "utf-8")
    (folder / "edges.csv").write_text("source,target\nmrn-20417,mrn-20981\n")
    np.savez(folder / "more.npz", x=X)
    return folder


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return play(tmp_path_factory.mktemp("parties"), rounds=1)


def zipped(name: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return out.getvalue()


def saved(array: Any) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, w=array)
    return out.getvalue()


def scan(path: Path, *words: object) -> tuple[int, list[dict[str, Any]], str]:
    shown = invoke("audit", "scan", path, *words, "--format", "json")
    found = json.loads(shown.stdout) if shown.stdout else {"found": []}
    return shown.exit_code, found["found"], shown.stdout + shown.stderr


PLANTED = {
    "identifier": b"refused: no neighbour of MRN-20417 is here",
    "identifier, accents": "for \u00fcnal s\u0153ur 77, as asked".encode(),
    "identifier, JSON": json.dumps({"who": "\u00dcnal S\u0153ur 77"}).encode(),
    "identifier, HTML": b"<p>&Uuml;nal S&oelig;ur 77</p>",
    "identifier, address": b"GET /of/%C3%9Cnal%20S%C5%93ur%2077 failed",
    "identifier, UTF-16": "who: mrn-20981".encode("utf-16"),
    "identifier, base 64": base64.b64encode(b'{"what": "a neighbour of mrn-20417 was asked for"}'),
    "identifier, packed": zipped("report/a.html", b"about mrn-20981."),
    "identifier, packed twice": zipped("in.zip", zipped("b.txt", b"about mrn-20981.")),
    "identifier, a name": zipped("models/mrn-20981/model", b""),
    "text": b"x: Called  twice about the broken lift, would RATHER not",
    "row": b"features [34.0, 2.9130, 1077.25, 61.40]",
    "row, JSON": json.dumps([{"age": 34, "income": 2.913, "b": 1077.25, "w": 61.4}]).encode(),
    "row, array": saved(X),
    "row, array of doubles": saved(X[2:].astype(np.float64)),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found_and_not_shown(tables: Path, tmp_path: Path, name: str) -> None:
    file = tmp_path / "site.log"
    file.write_bytes(
        b"nothing here\n" + PLANTED[name] if b"\x00" not in PLANTED[name] else PLANTED[name]
    )
    code, found, said = scan(tmp_path, "--data", tables)
    kind = name.partition(",")[0]
    assert code == 3 and kind in {hit["kind"] for hit in found}
    for value in ("20417", "20981", "nal S", "lift", "2.913", "1077"):
        assert value not in said.replace(found[0]["file"], "")


def test_what_is_nobodys_own_is_not_found(tables: Path, tmp_path: Path, toy: Toy) -> None:
    """Control: a whole run and its report, parts of values, counts, categories, short ids."""
    run = save(toy.view(), tmp_path / "run")
    assert invoke("audit", "report", run, "--fail-on", "never").exit_code in (0, 5)
    (run / "x.txt").write_text(
        "mrn-2041, xmrn-20417, mrn-204170; 7; risky; none; 34, 2.913; 1 2 3 4 5 6 7 8\n"
        "[0, 1, 2, 3, 4, 5]; 51 29 42 34; called twice about\n"
    )
    code, found, _ = scan(run, "--data", tables)
    assert (code, found) == (0, [])


def test_keys_and_paths_are_found_in_every_spelling(parties: Federation, tmp_path: Path) -> None:
    place, seed = parties.folders["client-1"], bytes.fromhex(SEED)
    for text in (
        seed,
        SEED.encode(),
        SEED.upper().encode(),
        base64.b64encode(seed),
        b"a" + base64.b64encode(b"12" + seed + b"3"),
        str(place).encode(),
    ):
        file = tmp_path / "core"
        file.write_bytes(b"\n\n" + text + b"\n")
        code, found, said = scan(file, "--party", place)
        assert code == 3 and found[0]["line"] == 3 and SEED not in said.lower()
    (tmp_path / "core").write_bytes(b"nothing\n" + SEED[:30].encode())
    assert scan(tmp_path / "core", "--party", place)[0] == 0


def test_what_cannot_be_searched_is_no_pass(tables: Path, tmp_path: Path) -> None:
    deep = b"x"
    for _ in range(5):
        deep = zipped("in.zip", deep)
    for data in (deep, zipped("a", b"x" * 9000)[:-40], b"\x93NUMPY\x01\x00\x00"):
        file = tmp_path / "file"
        file.write_bytes(data)
        code, found, said = scan(file, "--data", tables)
        assert code == 3 and not found and "NOT SEARCHED" in said
    assert invoke("audit", "scan", tmp_path).exit_code == 2
    assert invoke("audit", "scan", tmp_path / "none", "--data", tables).exit_code == 2
    assert invoke("audit", "scan", tmp_path, "--data", tmp_path).exit_code == 2
    bad = tmp_path / "data"
    bad.mkdir()
    (bad / "x.npz").write_bytes(b"mrn-20417")
    shown = invoke("audit", "scan", tmp_path, "--data", bad)
    assert shown.exit_code == 2 and "mrn" not in shown.stderr


def test_a_filter_is_of_one_process_and_prints_nothing(tables: Path) -> None:
    one, other = Sought(), Sought()
    for sought in (one, other):
        seek_tables(sought, tables)
    assert len(one) == len(other) and one.short
    assert not set(one._rows) & set(other._rows)
    held = repr(one) + repr(vars(one))
    assert not [value for value in ("20417", "lift", "1077", "nal") if value in held.lower()]
    assert [hit.kind for hit in search("x", b"mrn-20417", one)] == ["identifier"]


def test_hand_over_bundle_and_export_look_before_they_write(
    parties: Federation, toy: Toy, tables: Path, tmp_path: Path
) -> None:
    """A plan names an identifier: whatever is made of it is not written; without it, it is."""
    out, run = tmp_path / "out", save(without_models(toy), tmp_path / "run")
    party, leaky = parties.folders["client-1"], tmp_path / "leaky"
    leaky.mkdir()
    name = parties.toy.plan.items[0].id
    (leaky / "nodes.csv").write_text(f"id,note\nclient-1,\n{name},\n")
    commands = {
        "hand-over": ("site", "hand-over", party, "--out", out),
        "bundle": ("audit", "bundle", run, "--out", out),
        "export": ("audit", "export", run, "--to", "art30-csv", "--out", out),
    }
    for which, words in commands.items():
        shown = invoke(*words, "--data", leaky)
        assert shown.exit_code == 3 and not out.exists(), (which, shown.stderr)
        assert "identifier" in shown.stderr
        assert invoke(*words, "--data", tables).exit_code == 0 and out.exists()
        out.unlink()


def test_a_hand_over_that_would_hold_the_seed_is_not_written(
    parties: Federation, tmp_path: Path
) -> None:
    party = parties.folders["client-2"]
    document = json.loads((party / "identity.json").read_text())
    plan = (place_of(party) / "run" / "plan.json").read_bytes()
    digest = parties.toy.plan.policy_digest
    assert digest.encode() in plan
    (party / "identity.json").write_text(json.dumps({**document, "seed": digest}))
    shown = invoke("site", "hand-over", party, "--out", tmp_path / "x.zip")
    assert shown.exit_code == 3 and "key in x.zip!" in shown.stderr
    assert not (tmp_path / "x.zip").exists() and digest not in shown.stderr


def test_what_cannot_be_searched_is_never_written(tables: Path) -> None:
    sought = Sought()
    seek_tables(sought, tables)
    with pytest.raises(SiteData, match="was not written"):
        refuse_found("out", zipped("a", b"x" * 9000)[:-40], sought)
    with pytest.raises(SiteData) as refused:
        refuse_found("out", b"about mrn-20981 and mrn-20417", sought)
    assert "mrn" not in str(refused.value)
    refuse_found("out", b"nothing", sought)
    refuse_found("out", b"mrn-20981", None)


def test_spellings_that_json_base_64_and_tables_with_gaps_use(tmp_path: Path) -> None:
    names = ["C/C=C\\C(N)O", "\U00020bb7\u91ce\u5bb6\u592a\u90ce\u5b50", "Иванова Мария Петровна"]
    rows = "".join(f"{name},1.25,,{n}.75,8.5,{n}.125\n" for n, name in enumerate(names, 2))
    data = tmp_path / "data"
    data.mkdir()
    (data / "nodes.csv").write_text(f"id,a,b,c,d,e\n{rows}x,9.5,3.5,7.75,6.5,5.125\n", "utf-8")
    sought = Sought()
    seek_tables(sought, data)
    for name in names:
        told = json.dumps({"who": name})
        packed = base64.b64encode(f"it is about {name}".encode())
        for text in (told.encode(), packed):
            assert [hit.kind for hit in search("x", text, sought)] == ["identifier"], name
    for text in (b"1.25, , 2.75, 8.5, 2.125", b"9.5, 3.5, 7.75, 6.5, 5.125"):
        assert [hit.kind for hit in search("x", text, sought)] == ["row"]
    assert not list(search("x", b"1.25, 3.5, 2.75, 8.5, 1.125", sought))  # control


def test_a_damaged_archive_and_an_odd_name_end_no_scan(tables: Path, tmp_path: Path) -> None:
    place = tmp_path / "given"
    place.mkdir()
    packed = bytearray(zipped("a", bytes(range(256)) * 40))
    packed[32:60] = b"\xff" * 28
    (place / "a.zip").write_bytes(packed)
    (place / os.fsdecode(b"gr\xfc\xdfe mrn-20417")).write_bytes(b"")
    code, found, said = scan(place, "--data", tables)
    assert code == 3 and "NOT SEARCHED" in said and [h["kind"] for h in found] == ["identifier"]


def test_a_pipe_is_refused_and_not_called_clean(tables: Path, tmp_path: Path) -> None:
    """It was "0 found in 0 files" with exit code 0, whatever came out of it."""
    place = tmp_path / "handed"
    place.mkdir()
    os.mkfifo(place / "log")
    shown = invoke("audit", "scan", place / "log", "--data", tables)
    assert shown.exit_code == 2 and "neither a file nor a folder" in shown.stderr
    assert invoke("audit", "scan", "/dev/null", "--data", tables).exit_code == 2
    (place / "other").symlink_to(tables)
    code, _, said = scan(place, "--data", tables)
    assert code == 3 and said.count("no plain file") >= 2
    (place / "log").unlink()
    (place / "other").unlink()
    (place / "log").write_text("nothing of a site's own")  # the control
    assert scan(place, "--data", tables)[0] == 0
