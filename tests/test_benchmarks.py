"""`benchmarks/`: each prints what its README names; what `aggregation.py` measured is the sum."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks._kinds import BASE, KINDS
from benchmarks._ours import Bare, Encrypted, Masks
from benchmarks._rows import Row, play, updates
from crypto.errors import OutOfRange

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = str(ROOT / "benchmarks" / "aggregation.py")
KEYS = {
    "bfv": "public",
    "bfv12": "public",
    "bfv_online": "public",
    "ckks": "public",
    "masks": "none",
    "masks12": "none",
    "peer_fedgraph": "public",
    "peer_nvflare": "symmetric",
    "shared_key_baseline": "symmetric",
}
FIELDS = {
    "scheme",
    "key",
    "params",
    "client_ms",
    "server_ms",
    "open_ms",
    "bytes_per_param",
    "max_abs_error",
    "peak_mb",
    "time_ratio",
    "bytes_ratio",
}
SIZES = (70, 5000)
CLIENTS = 3
STEP16, STEP12 = 0.25 / (2**15 - 1), 0.25 / (2**11 - 1)


def call(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT, "--clients", str(CLIENTS), "--repeats", "1", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def printed() -> dict[str, Any]:
    done = call("--parameters", *map(str, SIZES), "--format", "json", "--bare")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_row_is_there_once_per_size_with_exactly_the_named_fields(
    printed: dict[str, Any],
) -> None:
    found = [(row["scheme"], row["params"]) for row in printed["rows"]]
    assert sorted(found) == sorted((name, size) for name in KEYS for size in SIZES)
    for row in printed["rows"]:
        assert set(row) == FIELDS
        assert row["key"] == KEYS[row["scheme"]]
    assert printed["failed"] == []


def test_figures_are_measured_not_filled_in(printed: dict[str, Any]) -> None:
    for row in printed["rows"]:
        assert row["client_ms"] > 0
        assert row["server_ms"] > 0
        assert row["open_ms"] > 0
        assert row["bytes_per_param"] > 0
        assert 0 < row["max_abs_error"] < STEP12
        if row["scheme"] in {"bfv", "bfv_online", "ckks", "masks"}:
            assert row["max_abs_error"] < STEP16
        if sys.platform == "linux":
            assert 0 <= row["peak_mb"] < 4000


def test_ratios_are_of_the_numbers_printed_beside_them(printed: dict[str, Any]) -> None:
    for size in SIZES:
        rows = {row["scheme"]: row for row in printed["rows"] if row["params"] == size}
        base = rows[BASE]
        assert base["time_ratio"] == base["bytes_ratio"] == 1
        for row in rows.values():
            assert row["time_ratio"] == pytest.approx(base["client_ms"] / row["client_ms"])
            per_value = base["bytes_per_param"] / row["bytes_per_param"]
            assert row["bytes_ratio"] == pytest.approx(per_value)


def test_uploads_have_the_length_that_their_words_and_ciphertexts_take(
    printed: dict[str, Any],
) -> None:
    rows = {row["scheme"]: row for row in printed["rows"] if row["params"] == 5000}
    assert rows["masks"]["bytes_per_param"] == 4
    assert rows["masks12"]["bytes_per_param"] == 2
    assert rows["bfv"]["bytes_per_param"] * 5000 == 61_440  # two values share a coefficient
    assert rows["bfv"]["bytes_per_param"] == rows["bfv_online"]["bytes_per_param"]


def test_bare_is_measured_for_every_size(printed: dict[str, Any]) -> None:
    assert [part["params"] for part in printed["bare"]] == list(SIZES)
    for part in printed["bare"]:
        assert part["masks_ms"] > 0
        assert part["bare_ms"] > 0
        assert 0.1 < part["masks_over_bare"] < 1000


def test_the_base_joins_the_rows_that_were_asked_for() -> None:
    done = call("--parameters", "70", "--rows", "masks", "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["scheme"] for row in rows] == [BASE, "masks"]
    assert all(row["time_ratio"] > 0 for row in rows)


def test_the_table_says_the_same() -> None:
    done = call("--parameters", "70", "--rows", "masks12")
    assert done.returncode == 0, done.stderr
    head, *lines = done.stdout.splitlines()
    assert set(head.split()) == FIELDS
    assert [line.split()[0] for line in lines] == [BASE, "masks12"]


def test_a_row_that_fails_is_named_and_makes_the_exit_code_1(tmp_path: Path) -> None:
    bare = tmp_path / "python"  # an interpreter without any package
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    words = ("--rows", "masks,flower_secagg_plus", "--flower", str(bare), "--format", "json")
    done = call("--parameters", "70", *words)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert [row["scheme"] for row in found["rows"]] == [BASE, "masks"]
    assert [part["scheme"] for part in found["failed"]] == ["flower_secagg_plus"]
    assert "flower_secagg_plus with 70 parameters failed" in done.stderr


@pytest.mark.parametrize(
    "words", [("--rows", "no_such_row"), ("--rows", "flower_secagg_plus"), ("--repeats", "0")]
)
def test_a_wrong_command_measures_nothing(words: tuple[str, ...]) -> None:
    done = call("--parameters", "70", *words)
    assert done.returncode == 2
    assert not done.stdout
    assert words[-1] in done.stderr or "at least one" in done.stderr


class Off:
    """A row that opens the true mean plus `error`."""

    tolerance = 1e-3

    def __init__(self, mean: Any, error: float) -> None:
        self.mean, self.error = mean, error

    def prepare(self) -> None:
        pass

    def client(self, index: int, vector: Any) -> bytes:
        return b"upload"

    def server(self, upload: bytes) -> None:
        pass

    def close(self) -> bytes:
        return b"total"

    def open(self, total: bytes) -> Any:
        return self.mean + self.error


def test_a_wrong_mean_is_a_failure() -> None:
    vectors, mean = updates(10, 2)
    assert play(Off(mean, 9e-4), vectors, mean).max_abs_error == pytest.approx(9e-4)
    for error in (2e-3, math.nan, math.inf):
        with pytest.raises(ArithmeticError):
            play(Off(mean, error), vectors, mean)
    with pytest.raises(ArithmeticError):
        play(Off(mean[:-1], 0.0), vectors, mean)


def test_updates_are_the_same_in_every_process_and_inside_the_bound() -> None:
    (first, *_), mean = updates(1000, 4)
    again, same = updates(1000, 4)
    assert np.array_equal(first, again[0])
    assert np.array_equal(mean, same)
    assert first.dtype == np.float32
    assert 0.1 < np.abs(first).max() <= 0.25
    assert mean == pytest.approx(np.mean(again, axis=0, dtype=np.float64))


OURS = {name: kind for name, kind in KINDS.items() if name.startswith(("bfv", "ckks", "masks"))}


@pytest.mark.parametrize("name", sorted(OURS))
def test_o4_a_row_of_ours_without_its_masks_would_be_seen(name: str) -> None:
    """All uploads but one give nothing: the masks that a benchmark might leave out are there."""
    vectors, _ = updates(70, 4)
    row = made(name)
    for index, vector in enumerate(vectors[:-1]):
        row.prepare()
        row.server(row.client(index, vector))
    try:
        found = row.open(row.close())
    except OutOfRange:
        return  # the packing refuses totals that no cohort can have
    partial = np.sum(vectors[:-1], axis=0) / 4
    assert np.abs(found - partial).max() > 1


@pytest.mark.parametrize("name", sorted(OURS))
def test_o4_uploads_of_one_vector_differ_between_clients(name: str) -> None:
    row = made(name)
    (vector, *_), _ = updates(70, 1)
    uploads = []
    for index in range(2):
        row.prepare()
        uploads.append(row.client(index, vector))
    assert uploads[0] != uploads[1]


def test_o9_prepared_zeros_serve_one_upload() -> None:
    row = made("bfv_online")
    assert isinstance(row, Encrypted)
    (vector, *_), _ = updates(70, 1)
    row.prepare()
    prepared = row._zeros
    first, second = row.client(0, vector), row.client(0, vector)  # nothing prepared for this one
    half = len(first) // 2
    assert prepared is not None  # c1 is the zero's own, so it shows where a zero went
    assert first[half:] == prepared[half:]
    assert second[half:] != prepared[half:]


@pytest.mark.parametrize(("clients", "bits", "width"), [(16, 12, 2), (17, 12, 4), (10, 16, 4)])
def test_masks_take_the_narrowest_words_that_hold_the_total(
    clients: int, bits: int, width: int
) -> None:
    (vector, *_), _ = updates(70, 1)
    assert len(Masks(70, clients, bits).client(0, vector)) == 70 * width


def test_bare_does_the_work_it_is_the_measure_of() -> None:
    (vector, *_), _ = updates(50_000, 1)  # more than one block
    least = Bare(3)
    words = least.client(vector)
    assert np.abs(least.unmasked(words) - vector).max() < STEP16
    assert len(np.unique(words >> np.uint32(24))) == 256  # the masks fill their words


SMALL = {
    "bench_envelope.py": "--parameters 70 --clients 5 --entries 20 --repeats 1 --format json",
    "bench_exchange.py": "--sites 2 --sizes 1000 --repeats 1 --rest 0.5 --format json",
    "bench_he.py": "--parameters 70 --repeats 1 --ledgers memory --format json",
    "bench_ledger.py": "--entries 20 --repeats 1 --format json",
    "bench_models.py": "--parameters 70 --clients 5 --repeats 1 --format json",
    "bench_pub.py": "--parameters 70 --clients 5 --repeats 1 --many 5 --format json",
    "bench_resume.py": "--rounds 1 --repeats 1 --policies masks",
    "bench_start.py": "--repeats 1 --format json",
    "bench_verify.py": "--entries 100 --clients 5 --repeats 1 --format json",
}


def keys(found: Any) -> set[str]:
    inner = found.values() if isinstance(found, dict) else ()
    return set(found if isinstance(found, dict) else ()).union(*map(keys, inner))


SLOW = {f"bench_{part}.py" for part in ("exchange", "he", "models", "pub", "resume", "start")}
SCRIPTS = sorted(f.name for f in (ROOT / "benchmarks").glob("bench_*.py"))


@pytest.mark.parametrize(
    "script", [pytest.param(s, marks=pytest.mark.long if s in SLOW else ()) for s in SCRIPTS]
)
def test_a_script_prints_the_figures_that_its_row_names(script: str) -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    rows = re.findall(rf"^\| `{script}` \|.*\|(.*)\|$", text, flags=re.M)
    named = {name for row in rows for name in re.findall("`(.*?)`", row)}
    command = [sys.executable, f"benchmarks/{script}", *SMALL[script].split()]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(rows) == 1 and named
    assert named <= keys(json.loads(done.stdout))


LARGE = """
import sys
import numpy as np
from benchmarks._rows import serve, updates

class Large:
    tolerance = 0.0
    def __init__(self, parameters, clients):
        _, self.mean = updates(parameters, clients)
    def prepare(self): pass
    def client(self, index, vector): return str(np.ones(6_000_000).sum()).encode()
    def server(self, upload): pass
    def close(self): return b"total"
    def open(self, total): return self.mean.copy()

np.ones(15_000_000).sum()  # a larger peak, but before the round
sys.exit(serve(Large, 10, 2))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_peak_memory_is_that_of_the_round() -> None:
    command = [sys.executable, "-c", LARGE]
    done = subprocess.run(
        command, input="round\n", cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert 47 <= json.loads(done.stdout)["peak_mb"] < 60  # six million doubles for a moment


def made(name: str) -> Row:
    make = OURS[name].make
    assert make is not None
    return make(70, 4)


def test_the_plot_of_mixtures_has_a_panel_for_each_floor_and_a_mark_for_each_figure() -> None:
    from benchmarks._unmixing_plot import plot
    from benchmarks.unmixing import FLOORS, WIDTHS, rows

    value = {"value": "0.8", "low": "0.7", "high": "0.9"}
    found = [
        {"metric": "AUC of records", "what": what, "protected": value, "raw": value, "null": value}
        for what in ("by the layers that made", "by the layers that the round began with")
    ]
    drawn = plot([{"chosen": chosen, "rows": found} for chosen in rows("grid")])
    assert all(f">floor {floor}<" in drawn for floor in FLOORS)
    assert drawn.count("<circle") == 4 * len(FLOORS) * len(WIDTHS)
    assert "<script" not in drawn and drawn.count("http") == 1  # its namespace


def test_a_session_is_told_from_cryptography_by_rounds_without_the_clock() -> None:
    from benchmarks.many_clients import told_apart

    slow, part = np.array([12.0, 5.0, 0.5, 1.0]), np.array([8.0, 4.0, 0.25, 0.5])
    counted, bare = (True, 1.0, slow, part), (False, 1.0, np.array([10.0, 0, 0, 0]), part * 0.75)
    # The clock took 2 where calls in a row take 1: so of what was counted it is twice 0.5.
    assert told_apart([bare, counted]) == (10.0, 4.0, 6.0, 3.5, 2.0)
    assert told_apart([counted]) == (11.0, 4.5, 7.5, 3.75, 1.0)


def test_the_best_test_round_is_the_largest_of_all_rounds_and_skips_what_is_not_there(
    tmp_path: Path,
) -> None:
    from benchmarks.personalised import _highest

    metrics = tmp_path / "metrics.jsonl"
    rounds = [
        {"round": 1, "global_f1": 0.5, "local_f1": None, "test_accuracy": 0.9},
        {"round": 2, "global_f1": 0.7, "local_f1": 0.6},
        {"round": 3, "global_f1": 0.6, "local_f1": 0.4},
    ]
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rounds), "utf-8")
    assert _highest(metrics) == {"global_f1": 0.7, "local_f1": 0.6}


def test_tables_of_the_authors_size_differ_in_what_their_names_say() -> None:
    from benchmarks.fed_ego import rows

    size, long, bare = (rows(f"published_{kind}") for kind in ("size", "long", "bare"))
    (plain,) = bare.values()
    base = size["cora fed_ego 512"]
    assert {k for k in base if base[k] != plain[k]} == {
        "model.dropout"
    } and base.keys() == plain.keys()
    assert {k for k in base if base[k] != long["cora fed_ego 512"][k]} == {"algorithm.rounds"}
    assert (base["model.hidden"], base["model.lr"], base["algorithm.rounds"]) == (512, 3e-4, 200)


def test_a_run_counts_from_when_every_party_was_heard_of() -> None:
    """Under `he` the authority alone is asked first, and clients load data in the second."""
    from benchmarks._exchange_runs import there

    def asked(*names: str) -> list[tuple[dict[str, str], None]]:
        asks = [({"kind": "release", "recipient": name}, None) for name in names]
        return asks + [({"kind": "receipt", "sender": name}, None) for name in names]

    clients, plan = ("a", "b"), [({"kind": "plan"}, None)]
    rounds = [*asked(*clients), ({"kind": "heads"}, None), *asked("authority")] * 3
    assert there([*plan, *asked("authority"), *asked(*clients), *rounds]) == 2
    assert there([*plan, *asked(*clients), *asked(*clients)]) == 1  # the control
    with pytest.raises(ArithmeticError, match="never heard of"):
        there([*plan, *asked(*clients), ({"kind": "release", "recipient": "c"}, None)])
