"""The search for secrets on a disk finds them in whatever form, and nothing else."""

from __future__ import annotations

import base64
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.sites.traces import Wanted, of_bytes, of_row, of_text

KEY = np.random.default_rng(1).bytes(32)
TEXT, ROW = "six-random words of nobody", ("37.10286453", "-8412.906271")
WANTED = Wanted({"key": of_bytes(KEY), "text": of_text(TEXT), "row": of_row(ROW)})

FORMS = {
    "raw": ("key", KEY),
    "hex": ("key", KEY.hex().encode()),
    "capitals": ("key", KEY.hex().upper().encode()),
    "base64": ("key", base64.b64encode(KEY).rstrip(b"=")),
    "in longer base64": ("key", base64.b64encode(b"a" + KEY + b"more")),
    "in other base64": ("key", base64.urlsafe_b64encode(b"ab" + KEY)),
    "as Python says bytes": ("key", repr(KEY).encode()),
    "as JSON says bytes": ("key", json.dumps([*KEY]).encode()),
    "text": ("text", TEXT.encode()),
    "text in base64": ("text", base64.b64encode(TEXT.encode())),
    "text in two bytes each": ("text", TEXT.encode("utf-16-le")),
    "one number": ("row", ROW[0].encode()),
    "one number as float64": ("row", np.float64(ROW[1]).tobytes()),
    "as float32": ("row", np.array([*map(float, ROW)], "<f4").tobytes()),
    "as float32 the other way": ("row", np.array([*map(float, ROW)], ">f4").tobytes()),
    "as float32 is printed": ("row", repr(float(np.float32(ROW[0]))).encode()),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_planted_is_found_at_every_place(form: str) -> None:
    name, planted = FORMS[form]
    noise = np.random.default_rng(2).bytes(5000)
    assert WANTED.found(noise) == set()
    for at in (0, *range(1001, 1010), len(noise)):
        assert WANTED.found(noise[:at] + planted + noise[at:]) == {name}
    assert WANTED.found(noise[:9] + planted[: len(planted) // 3] + noise) == set()  # a part is none


def test_files_archives_and_names_are_searched(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "log.txt").write_bytes(b"all is well")
    assert WANTED.below([tmp_path]) == set()
    (tmp_path / "deep" / "log.txt").write_bytes(b"it says " + TEXT.encode())
    with zipfile.ZipFile(tmp_path / "inner", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", KEY * 3)
    with zipfile.ZipFile(tmp_path / "data", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(tmp_path / "inner", "inner")
    (tmp_path / "inner").unlink()
    (tmp_path / KEY.hex()).touch()
    found = WANTED.below([tmp_path / "deep", *tmp_path.glob("*")])
    assert found == {
        (str(tmp_path / "deep" / "log.txt"), "text"),
        (f"{tmp_path / 'data'}:inner:a", "key"),
        (str(tmp_path / KEY.hex()), "key"),
    }


@pytest.mark.parametrize("plain", [b"short", bytes(32), b"abababababab"])
def test_what_is_met_by_chance_is_not_looked_for(plain: bytes) -> None:
    with pytest.raises(ValueError, match="plain"):
        Wanted({"plain": [plain]})
