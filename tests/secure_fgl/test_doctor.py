"""`secure-fgl doctor`: each check fails where its matter is wrong, and says what to do."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from secure_fgl import _floors, doctor
from secure_fgl.isolation.kernel import CannotIsolate
from tests.secure_fgl.cli_tools import invoke

Patch = pytest.MonkeyPatch


def lines(folder: Path) -> dict[str, dict[str, str]]:
    shown = invoke("doctor", "--runs", folder, "--format", "json")
    return {line["check"]: line for line in json.loads(shown.stdout)["checks"]}


@pytest.fixture
def healthy(tmp_path: Path, monkeypatch: Patch) -> Path:
    for variable in ("SECURE_FGL_STATE", "SECURE_FGL_BUDGETS", "SECURE_FGL_DATA"):
        place = tmp_path / variable.lower()
        place.mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(place))
    return tmp_path / "runs"


def test_a_sound_machine_passes_and_nothing_is_left_behind(healthy: Path) -> None:
    found = lines(healthy)
    bare = {name for name, line in found.items() if line["status"] != "OK"}
    assert bare <= {"device", "packages", "isolation"} | {
        n for n in found if n.startswith("extra ")
    }
    assert not any(line["status"] == "FAIL" for line in found.values())
    assert not healthy.exists()
    assert all(not list(place.iterdir()) for place in healthy.parent.iterdir())
    shown = invoke("doctor", "--runs", healthy)
    assert shown.exit_code == 0 and all(len(line) <= 80 for line in shown.stdout.splitlines())


def _no_floor() -> None:
    raise _floors.NotOurCode("Secure-FGL refuses to start: a floor is another's")


def _full(_: object) -> SimpleNamespace:
    return SimpleNamespace(free=1 << 20)


WRONG: dict[str, Callable[[Path, Patch], object]] = {
    "floors": lambda path, patch: patch.setattr(_floors, "check", _no_floor),
    "entropy": lambda path, patch: patch.setattr(os, "getrandom", lambda n, flags: b"\1" * n),
    "runs": lambda path, patch: patch.setattr(doctor.shutil, "disk_usage", _full),
    "keys": lambda path, patch: (path / "secure_fgl_state").chmod(0o755),
    "budgets": lambda path, patch: (path / "secure_fgl_budgets").chmod(0o770),
    "clock": lambda path, patch: patch.setattr(doctor.time, "time", lambda: 1e9),
    "data": lambda path, patch: patch.setenv("SECURE_FGL_DATA", str(path / "none")),
    "packages": lambda path, patch: patch.setattr(
        doctor.metadata, "requires", lambda name: ["torch>=99", "numpy>=1"]
    ),
}


@pytest.mark.parametrize("check", WRONG)
def test_each_check_finds_what_is_wrong(check: str, healthy: Path, monkeypatch: Patch) -> None:
    WRONG[check](healthy.parent, monkeypatch)
    found = lines(healthy)
    assert found[check]["status"] == "FAIL"
    assert found[check]["todo"] or check == "floors"
    assert invoke("doctor", "--runs", healthy).exit_code != 0


def test_what_is_missing_but_may_be_is_not_checked(healthy: Path, monkeypatch: Patch) -> None:
    def cannot() -> int:
        raise CannotIsolate("Answers cannot be isolated on this machine: no Landlock.")

    monkeypatch.setattr(doctor, "check_kernel", cannot)
    monkeypatch.setattr(doctor, "extras", lambda: ["none"])
    monkeypatch.delenv("SECURE_FGL_DATA")
    monkeypatch.setattr(
        doctor.metadata, "requires", lambda name: ["numpy>=1", 'not-there>=1; extra == "none"']
    )
    found = lines(healthy)
    bare = {name for name, line in found.items() if line["status"] == "NOT CHECKED"}
    assert bare - {"device"} == {"extra none", "isolation", "data"}
    assert "secure-fgl[none]" in found["extra none"]["said"]
    assert invoke("doctor", "--runs", healthy, "--strict").exit_code == 4


def test_versions_are_compared_by_their_numbers(monkeypatch: Patch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "2.10.0+cpu")
    for bound, fits in ((">=2.6", True), (">=2.11", False), (">=2,<3", True), ("<2.10", False)):
        assert doctor._look([("torch", bound)]) == (
            ([], ["torch 2.10.0+cpu"]) if fits else (["torch 2.10.0+cpu"], [])
        )


@pytest.mark.parametrize("apart", [0.0, 100.0])
def test_a_clock_is_right_however_long_its_check_is_held_up(
    apart: float, healthy: Path, monkeypatch: Patch
) -> None:
    """Control: clocks that are apart are found, whatever the load."""
    times = iter([1_900_000_000.0, 1_900_000_300.0])  # five minutes pass on a loaded machine
    written = SimpleNamespace(st_mtime=1_900_000_300.0 + apart)
    monkeypatch.setattr(doctor, "time", SimpleNamespace(time=lambda: next(times)))
    monkeypatch.setattr(doctor, "os", SimpleNamespace(fstat=lambda number: written))
    line = doctor.look("clock", doctor._clock, healthy)
    assert (str(line.status) == "FAIL") is bool(apart), line


def test_a_folder_that_goes_while_it_is_looked_at_is_looked_for_anew(
    healthy: Path, monkeypatch: Patch
) -> None:
    healthy.mkdir()
    usage = doctor.shutil.disk_usage

    def gone(place: Path) -> object:
        if place == healthy.absolute():
            healthy.rmdir()  # another run's, just now
        return usage(place)

    monkeypatch.setattr(doctor.shutil, "disk_usage", gone)
    line = doctor.look("runs", doctor._disk, healthy)
    assert str(line.status) == "OK" and str(healthy.parent) in line.said

    def flickers(place: Path) -> object:
        raise FileNotFoundError

    monkeypatch.setattr(doctor.shutil, "disk_usage", flickers)
    assert str(doctor.look("runs", doctor._disk, healthy).status) == "NOT CHECKED"
    healthy.touch()  # control: what stays and is no folder is found
    monkeypatch.setattr(doctor.shutil, "disk_usage", usage)
    assert str(doctor.look("runs", doctor._disk, healthy).status) == "FAIL"


def test_a_gpu_that_does_not_answer_is_not_checked(healthy: Path, monkeypatch: Patch) -> None:
    def busy() -> str:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(doctor, "gpu", busy)
    found = doctor.look("device", doctor._device, healthy)
    assert str(found.status) == "NOT CHECKED" and "memory" not in found.said
