"""A file of settings is a plain file: a pipe under its name ends nothing and holds nobody up."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from secure_fgl.config import Config
from secure_fgl.consortium import Consortium
from secure_fgl.data.own import load_spec
from secure_fgl.errors import UsageError
from secure_fgl.store.files import settings_text
from tests.secure_fgl.cli_tools import invoke

READERS: dict[str, Callable[[Path], object]] = {
    "config.yaml": Config.load,
    "spec.yaml": lambda path: load_spec(path.parent),
    "consortium.yaml": Consortium.load,
}


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_in_a_file_s_place_is_refused_at_once(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    os.mkfifo(path)
    holds = os.open(path, os.O_RDWR)  # a writer that never writes, so that no reader waits for one
    try:
        with pytest.raises(UsageError, match="no plain file"):
            READERS[name](path)
    finally:
        os.close(holds)
    path.unlink()
    path.write_text("[]")
    with pytest.raises(UsageError, match="keys and values"):  # the control
        READERS[name](path)


def test_plan_of_a_pipe_says_so(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.yaml")
    found = invoke("plan", tmp_path / "p.yaml")
    assert found.exit_code == 2 and "no plain file" in found.stderr


def test_a_file_far_larger_than_settings_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate((1 << 24) + 1)
    with pytest.raises(OSError, match="larger"):
        settings_text(tmp_path / "large")
