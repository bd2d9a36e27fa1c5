"""What every test shares: the folder of real data, markers and Hypothesis profiles.

Real data is never part of the repository. A test that needs it asks for the fixture `data_root`
and is skipped where the folder is absent. Under ``CI_REQUIRE_REAL_DATA=1`` such a skip is a
failure, so that a run which had the data cannot pass by not looking at it.
"""

from __future__ import annotations

import gc
import os
import pkgutil
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from secure_fgl import _floors
from secure_fgl.run import workers
from tests import kept, quicker, thinned

gc.set_threshold(50_000, 20, 20)  # by default torch's million objects are walked all the time
_floors.check()  # tests of a stranger's package would prove nothing about ours

# What a test watches or plants in this process would be out of its sight in a worker. Runs that say
# how many they want get them, and so does the command line in a process of its own.
workers.usable = lambda: 1

DATA_VARIABLE = "SECURE_FGL_DATA"
REQUIRE_VARIABLE = "CI_REQUIRE_REAL_DATA"

LONGEST = ("tests/toys/", "tests/test_readme.py", "tests/test_pages.py")
"""They come first: at the end one worker would wait while the other runs them."""

# Wall-clock deadlines fail on a busy machine and say nothing about the code.
settings.register_profile(
    "house", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=30
)
settings.register_profile("long", settings.get_profile("house"), max_examples=1000)
settings.load_profile("house")


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        f"real_data: needs the real data sets in the folder that {DATA_VARIABLE} names; "
        "implied by the fixture data_root",
        "long: takes minutes; run by `make test-long`, left out of `make test`",
    ):
        config.addinivalue_line("markers", line)


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    quick = config.stash.setdefault(thinned.QUICK, {})
    for item in items:
        function = item.nodeid.partition("[")[0]
        quick[function] = quick.get(function, False) or item.get_closest_marker("long") is None
        if "data_root" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.real_data)
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    required = os.environ.get(REQUIRE_VARIABLE) == "1"
    expected_failure = hasattr(report, "wasxfail")
    if required and report.skipped and not expected_failure and _needs_real_data(item):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} needs real data and was skipped, but {REQUIRE_VARIABLE}=1 says that "
            f"the data is here and must be used.\n{reason}"
        )
    return report


def _needs_real_data(item: pytest.Item) -> bool:
    return item.get_closest_marker("real_data") is not None


@pytest.fixture(scope="session", autouse=True)
def _budgets_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test may touch the privacy budgets of whoever runs it."""
    os.environ["SECURE_FGL_BUDGETS"] = str(tmp_path_factory.mktemp("budgets"))
    os.environ["SECURE_FGL_STATE"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real data sets; skips where it is absent."""
    named = os.environ.get(DATA_VARIABLE)
    if not named:
        pytest.skip(f"{DATA_VARIABLE} is not set, so there is no real data to test on")
    root = Path(named).expanduser().resolve()
    if not root.is_dir():
        pytest.skip(f"{DATA_VARIABLE} names {root}, which is not a folder")
    return root


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_the_device() -> Iterator[None]:
    """Take a write for done once the operating system has it; a bad descriptor fails as before.

    A process that is killed loses none of that, and no test cuts the power; one that asks whether a
    file is flushed patches `os.fsync` itself. Small runs spent up to half of their time waiting.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_state_that_nobody_looks_at() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        kept.leave_out(patched)
        yield


@pytest.fixture
def kept_state() -> Iterator[None]:
    """Runs of this test keep their state as their configuration says."""
    with kept.kept():
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_work_that_grows_with_the_session(_budgets_of_their_own: None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        quicker.leave_out(patched)
        yield


@pytest.fixture(scope="session", autouse=True)
def _our_folders_are_listed_once() -> Iterator[None]:
    """Do not list our folders of algorithms, models and data anew each time a name is looked up.

    It was done forty times a run. No test puts a file into a folder of ours; those that look for a
    new one add another folder to the package's path, which is listed as in use.
    """
    house = Path(_floors.__file__).resolve().parent.parent
    ours = tuple(str(house / floor) for floor in _floors._ALL)
    real, known = pkgutil.iter_modules, {}

    def listed(path: Any = None, prefix: str = "") -> Iterator[pkgutil.ModuleInfo]:
        folders = tuple(path or ())
        if prefix or not folders or not all(str(one).startswith(ours) for one in folders):
            return real(path, prefix)
        if folders not in known:
            known[folders] = list(real(path))
        return iter(known[folders])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pkgutil, "iter_modules", listed)
        yield


@pytest.fixture(autouse=True)
def _draws_of_its_own(request: pytest.FixtureRequest) -> None:
    """Let each test of a module that has an `RNG` begin at its seed, whichever tests ran before."""
    rng = getattr(request.module, "RNG", None)
    if isinstance(rng, np.random.Generator):
        seed = rng.bit_generator.seed_seq.entropy  # type: ignore[attr-defined]
        rng.bit_generator.state = np.random.default_rng(seed).bit_generator.state


@pytest.fixture
def same_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give attacks on every run the same chance.

    It comes from the heads of ledgers, hence from keys drawn anew for each run. A null control
    that is right is called biased in one report of 10,000; values differ from draw to draw.
    """
    from audits import attacks  # a second, which tests of pytest's own runs need not
    from audits.report import attack_rows

    real = attacks.seed_of
    for place in (attacks, attack_rows):
        monkeypatch.setattr(place, "seed_of", lambda heads, id: real("0" * 64, id))
