"""docs/own-data.md and trained-models.md are walked through: files are written, commands run."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from algorithms import nn
from secure_fgl.data.own import OwnDataError, OwnSpec, load_site, load_spec, site_rng
from tests.secure_fgl.cli_tools import ROOT, invoke

TEXT = (ROOT / "docs" / "own-data.md").read_text("utf-8")
MODELS = (ROOT / "docs" / "trained-models.md").read_text("utf-8")  # goes on where it ends
BLOCK = re.compile(r"```(\w+)(?: ([\w./-]+))?\n(.*?)```", flags=re.S)


def walk(language: str, path: str, body: str) -> None:
    """Do what one block of the page asks for."""
    if path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(body, "utf-8")
    elif language == "python":
        exec(compile(body, "docs/own-data.md", "exec"), {})
    elif language == "sh":
        for line in body.strip().splitlines():
            words = shlex.split(line)
            if words[0] in ("cp", "sed"):
                subprocess.run(words, check=True, timeout=60)
            else:
                assert words[0] == "secure-fgl"
                done = invoke(*words[1:])
                assert done.exit_code == 0, (line, done.stderr)


@pytest.fixture
def walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What the page's Python prints, after all of it was done in an empty folder."""
    monkeypatch.chdir(tmp_path)
    for language, path, body in BLOCK.findall(TEXT + MODELS):
        walk(language, path, body)
    return capsys.readouterr().out


def test_the_page_does_what_it_says(walked: str) -> None:
    assert Path("runs/rehearsal/report/report.html").is_file()
    printed = re.findall(r"`([^`]*edge[^`]*)`", TEXT[TEXT.index("It prints") :])[:2]
    assert len(printed) == 2
    for words in printed:
        assert words in walked
    spec = OwnSpec(name="x", task="node", features=2, classes=2, records=4, split=(1, 0, 0))
    for name in ("predictions.csv", "north.npz", "north.json", "shared.npz"):
        assert Path(name).is_file()
    assert Path("predictions.csv").read_text().startswith("id,predicted,p_fine,p_risky\nc-17,")
    assert set(nn.model_names()) <= set(re.findall(r"`(\w+)`", MODELS)), "the list of ONNX"
    Path("saved").mkdir()
    Path("data.pt").rename("saved/data.pt")
    assert load_site("saved", spec, site_rng(1, "saved")).y.tolist() == [0, 1, -1]


def test_its_example_of_an_error_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for language, path, body in BLOCK.findall(TEXT):
        if path:
            walk(language, path, body)
    nodes = Path("pilot/data/north/nodes.csv")
    nodes.write_text(nodes.read_text("utf-8").replace("29,2.1", "29,nan"), "utf-8")
    with pytest.raises(OwnDataError) as caught:
        load_site(nodes.parent, load_spec("pilot/data"), site_rng(1, "north"))
    (shown,) = [body for language, _, body in BLOCK.findall(TEXT) if language == "text"]
    assert shown == f"Error: {caught.value!s}\n"


def test_every_key_of_the_spec_is_explained() -> None:
    table = TEXT[TEXT.index("## `spec.yaml`") :]
    for key in OwnSpec.model_fields:
        assert f"`{key}`" in table
