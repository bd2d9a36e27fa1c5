"""What `secure_fgl` offers: importable, typed, documented, and used by the page that lists it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import secure_fgl

PAGE = (Path(__file__).resolve().parents[2] / "docs/api.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)


def test_the_page_lists_exactly_the_public_names_and_uses_each() -> None:
    listed = re.search(r"^All of these names come from `secure_fgl`: (.*)\.$", PAGE, flags=re.M)
    assert listed is not None
    assert re.findall(r"`(\w+)`", listed[1]) == secure_fgl.__all__ == sorted(secure_fgl.__all__)
    code = "\n".join(BLOCKS)
    assert [name for name in secure_fgl.__all__ if not re.search(rf"\b{name}\b", code)] == []


def undocumented(kind: Any) -> list[str]:
    """Public members of a class of ours without a docstring, or without types."""
    found = [] if inspect.getdoc(kind) else [kind.__name__]
    inherited = {*dir(BaseModel), *dir(Exception), *dir(str)}
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        if name.startswith("_") or name in inherited or name in getattr(kind, "model_fields", ()):
            continue
        code = getattr(member, "fget", None) or getattr(member, "func", None)
        code = code or getattr(member, "__func__", member)
        if not inspect.isfunction(code):
            continue
        bare = [
            p.name for p in inspect.signature(code).parameters.values() if p.annotation is p.empty
        ]
        untyped = (
            set(bare) - {"self", "cls"}
            or inspect.signature(code).return_annotation is inspect.Signature.empty
        )
        if not inspect.getdoc(code) or untyped:
            found.append(f"{kind.__name__}.{name}")
    return found


@pytest.mark.parametrize("name", secure_fgl.__all__)
def test_every_name_is_there_typed_and_documented(name: str) -> None:
    found = getattr(secure_fgl, name)
    assert found.__name__ == name
    assert inspect.getdoc(found)
    if inspect.isclass(found):
        assert undocumented(found) == []


def test_what_is_not_documented_is_found() -> None:
    class Bare:
        """A class."""

        def told(self) -> None:
            """With types and words."""

        def mute(self) -> None: ...

        def loose(self, what):  # type: ignore[no-untyped-def]
            """Without types."""

    assert undocumented(Bare) == ["Bare.loose", "Bare.mute"]
    with pytest.raises(AttributeError, match="no attribute 'Gateway'"):
        secure_fgl.Gateway  # noqa: B018


def test_the_blocks_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(BLOCKS), "docs/api.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "['MIXED: is refused', 'SIMILARITY: is refused'" in printed
    assert "rounds: 2 became 3" in printed
    assert (tmp_path / "runs/api/report/report.html").is_file()
    assert not (tmp_path / "runs/longer").exists()
