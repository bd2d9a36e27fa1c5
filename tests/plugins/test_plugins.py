"""Reading, finding and refusing plug-ins; what is not named is not looked at."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from secure_fgl import _floors
from secure_fgl.catalogue import algorithm_names
from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.plugins import loading
from secure_fgl.plugins.in_use import Plugins, find, installed_names
from secure_fgl.plugins.plugin import LARGEST, Kind, read
from tests.plugins.page import DATA, FEDPROX, MODEL, PARTITION, changed, config, write
from tests.secure_fgl.cli_tools import invoke

LOUD = 'raise RuntimeError("it was run")\n'


def loaded() -> set[str]:
    return {name for name in sys.modules if name.startswith(f"{_floors.PLUGINS}.")}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (FEDPROX, Kind.ALGORITHM),
        (MODEL, Kind.MODEL),
        (DATA, Kind.DATA),
        (PARTITION, Kind.PARTITION),
    ],
)
def test_a_file_is_read_and_its_kind_told_without_running_it(
    text: str, kind: Kind, tmp_path: Path
) -> None:
    before = loaded()
    plugin = read(write(tmp_path, "mine", text + LOUD))
    assert (plugin.name, plugin.kind, len(plugin.digest)) == ("mine", kind, 64)
    assert loaded() == before


REFUSED = {
    "no_python": ("def f(:\n", "no Python text, line 1"),
    "nothing": ("x = 1\n", "offers nothing: it has no ALGORITHM"),
    "several": (FEDPROX + DATA, "offers several things: algorithm, data"),
    "gateway": (
        "from protocols.wire.gateway import Gateway\n" + FEDPROX,
        "an algorithm has no use for: line 1: protocols.wire.gateway.Gateway",
    ),
    "crypto": (
        "import crypto.masks\n" + FEDPROX,
        "an algorithm has no use for: line 1: crypto.masks",
    ),
    "system": ("import os\n" + FEDPROX, "an algorithm has no use for: line 1: os"),
    "model": ("import pickle\n" + MODEL, "a model has no use for: line 1: pickle"),
    "data_gateway": (
        "from protocols.wire.gateway import Gateway\n" + DATA,
        "a data set has no use for: line 1: protocols.wire.gateway.Gateway",
    ),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_file_that_cannot_be_a_plug_in_is_refused_before_it_is_run(
    name: str, tmp_path: Path
) -> None:
    text, words = REFUSED[name]
    with pytest.raises(UsageError) as refused:
        read(write(tmp_path, "mine", text))
    told = str(refused.value)
    assert words in told and "mine.py" in told and "What to do:" in told


@pytest.mark.parametrize(
    "line",
    [
        "import requests",
        "import pickle",
        "import os\nos.system",
        "import torch\ntorch.load",
    ],
)
def test_what_the_list_does_not_see(line: str, tmp_path: Path) -> None:
    """The limit that is stated: files of data import what they like, and no call is followed."""
    assert read(write(tmp_path, "mine", f"{line}\n{DATA}")).kind is Kind.DATA
    opens = f"import torch\ntorch.load\nopen\n{FEDPROX}"
    assert read(write(tmp_path, "other", opens)).kind is Kind.ALGORITHM


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for file, words in (
        (tmp_path / "none.py", "cannot be read (No such file"),
        (tmp_path / "Mine.py", "cannot be a plug-in by its name"),
        (tmp_path / "mine.txt", "cannot be a plug-in by its name"),
        (tmp_path / "folder.py", "is a folder, and no plug-in"),
    ):
        (tmp_path / "folder.py").mkdir(exist_ok=True)
        with pytest.raises(UsageError, match="plug-in") as refused:
            read(file)
        assert words in refused.value.what
    large = write(tmp_path, "large", "#" * (LARGEST + 1))
    with pytest.raises(UsageError, match="larger than"):
        read(large)


BROKEN = {
    "raises": (FEDPROX + LOUD, "raises RuntimeError while it is imported, line"),
    "no_function": (
        changed(("ALGORITHM = my_fedprox", "ALGORITHM = 1")),
        "ALGORITHM is no function",
    ),
    "other_name": (
        changed(('Algorithm("my_fedprox"', 'Algorithm("fed_avg"')),
        "makes an algorithm that is called otherwise",
    ),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_file_that_cannot_be_run_is_refused(name: str, tmp_path: Path) -> None:
    text, words = BROKEN[name]
    federation = Federation(config=config(), plugins=[write(tmp_path, text=text)])
    with pytest.raises(UsageError) as refused:
        federation.plan()
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (changed(('"my_sum"', '"other"'), text=MODEL), "its NAME is not the file's"),
        (changed(('"node"', '"nodes"'), text=MODEL), "its TASK is none of"),
    ],
)
def test_a_model_that_is_none(text: str, words: str, tmp_path: Path) -> None:
    named = config(model={"name": "my_sum"}, algorithm={"name": "fed_avg"})
    federation = Federation(config=named, plugins=[write(tmp_path, "my_sum", text)])
    with pytest.raises(UsageError, match=words):
        federation.plan()
    assert not {loading.module_name(plugin) for plugin in federation.plugins} & loaded()


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [("fed_avg", FEDPROX), ("gcn", MODEL), ("synthetic_banks", DATA), ("iid_nodes", PARTITION)],
)
def test_no_plug_in_takes_a_name_of_ours(name: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is one of ours"):
        Plugins((), [write(tmp_path, name, text)])


@pytest.mark.parametrize("name", ["cora", "pyg/Planetoid/Cora", "own", "synthetic_banks"])
def test_no_data_set_takes_a_name_of_ours(name: str, tmp_path: Path) -> None:
    text = changed(('{"ring"', f'{{"{name}"'), text=DATA)
    plugins = Plugins((), [write(tmp_path, "my_ring", text)])
    with pytest.raises(UsageError, match="is one of ours"), plugins.in_use():
        pass


def test_two_with_one_name_are_refused_and_one_named_twice_is_one(tmp_path: Path) -> None:
    one, other = write(tmp_path / "a"), write(tmp_path / "b", text=FEDPROX + "\n")
    with pytest.raises(UsageError, match="Two plug-ins are called 'my_fedprox'"):
        find([], [one, other])
    assert len(find(["my_fedprox"], [one, one])) == 1
    assert find([str(one)], [one]) == find([], [one])
    first, second = write(tmp_path, "one_ring", DATA), write(tmp_path, "two_ring", DATA)
    both = Plugins((), [first, second])
    with pytest.raises(UsageError, match="Two plug-ins have a data set 'ring'"), both.in_use():
        pass


def test_what_is_not_named_is_neither_run_nor_found(tmp_path: Path) -> None:
    file, before = write(tmp_path), loaded()
    named = Federation(config=config(), plugins=[file])
    assert loaded() - before <= {loading.module_name(p) for p in named.plugins}
    assert named.plan().algorithm == "my_fedprox"
    assert "my_fedprox" not in algorithm_names()  # nor anywhere outside of that federation
    with pytest.raises(UsageError, match="There is no algorithm 'my_fedprox'"):
        Federation(config=config()).plan()
    with pytest.raises(UsageError, match="There is no plug-in 'my_fedprox'") as refused:
        Federation(config=config(plugins=["my_fedprox"]))
    assert "--plugin my_fedprox.py" in refused.value.fix


def test_two_versions_of_one_file_do_not_mix(tmp_path: Path) -> None:
    file = write(tmp_path)
    first = Federation(config=config(), plugins=[file])
    before = first.plan()
    write(tmp_path, text=changed(('unit="record"', 'unit="node"')))
    second = Federation(config=config(), plugins=[file])
    after = second.plan()
    assert before.plugins.keys() == after.plugins.keys() and before.plugins != after.plugins
    assert first.plan() == before and second.plan() == after
    units = [p.find("train", *place(p)).messages[0].fields[1].unit for p in (before, after)]
    assert units == ["record", "node"]


def place(plan: object) -> tuple[object, object]:
    from protocols.disclosures.names import Disclosure
    from protocols.plan.steps import Step

    return Disclosure.SUM, Step.UP


# --- configurations -------------------------------------------------------------------------------


def test_a_configuration_names_files_and_a_run_folder_has_names(tmp_path: Path) -> None:
    file = write(tmp_path)
    federation = Federation(config=config(plugins=[str(file)]))
    assert federation.config.plugins == ("my_fedprox",)
    assert str(tmp_path) not in federation.config.text()
    assert Config.of_others(federation.config.text()).plugins == ("my_fedprox",)
    assert config(plugins=[str(file)]).shared().plugins == ("my_fedprox",)


@pytest.mark.parametrize("named", ["a.py", "/a.py", "../a.py", "x/a.py"])
def test_no_configuration_of_others_names_a_file(named: str) -> None:
    text = config(plugins=[named]).text()
    with pytest.raises(UsageError, match="none that a run leaves"):
        Config.of_others(text)


@pytest.mark.parametrize("named", [["Mine.py"], ["x/mine"], ["mine.txt"], ["a.b"], ["a", "x/a.py"]])
def test_what_is_no_plug_in_s_name_is_no_configuration(named: list[str]) -> None:
    with pytest.raises(UsageError, match="configuration is not valid") as refused:
        config(plugins=named)
    assert "plugins" in refused.value.why


# --- installed ------------------------------------------------------------------------------------


def install(folder: Path, *, group: str = "algorithms", value: str = "", n: int = 1) -> Path:
    """Put a package with an entry point into a folder, as an installer would."""
    package = folder / f"their_package{n}"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(LOUD)  # whoever imports it would notice
    write(package)
    facts = folder / f"theirs{n}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: theirs{n}\nVersion: 1.0\n")
    value = value or f"their_package{n}.my_fedprox"
    (facts / "entry_points.txt").write_text(f"[secure_fgl.{group}]\nmy_fedprox = {value}\n")
    return folder


def test_an_entry_point_alone_does_nothing_and_named_is_read_as_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(install(tmp_path)))
    assert ("my_fedprox", "algorithm", "their_package1.my_fedprox") in installed_names()
    assert "my_fedprox" in invoke("list", "plugins").stdout
    with pytest.raises(UsageError, match="There is no algorithm"):
        Federation(config=config()).plan()
    plan = Federation(config=config(plugins=["my_fedprox"])).plan()
    assert plan.algorithm == "my_fedprox"
    by_file = Federation(config=config(), plugins=[write(tmp_path / "x")])
    assert plan.plugins == by_file.plan().plugins
    assert not any(name.startswith("their_package") for name in sys.modules)
    assert Federation(config=config(), plugins=["my_fedprox"]).plan() == plan


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"group": "models"}, "which is the algorithm 'my_fedprox'"),
        ({"value": "their_package1.none"}, "lies in no file of its own"),
        ({"value": "their_package1.my_fedprox:ALGORITHM"}, "lies in no file of its own"),
        ({"value": "nobody.my_fedprox"}, "lies in no file of its own"),
    ],
)
def test_an_entry_point_that_is_none(
    facts: dict[str, str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(install(tmp_path, **facts)))
    with pytest.raises(UsageError, match=words):
        Plugins(["my_fedprox"])


def test_two_packages_with_one_name_are_refused_and_a_file_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path)
    monkeypatch.syspath_prepend(str(install(tmp_path, n=2)))
    with pytest.raises(UsageError, match=r"Two installed plug-ins .* \(theirs1, theirs2\)"):
        Plugins(["my_fedprox"])
    assert Plugins(["my_fedprox"], [write(tmp_path / "x")]).names == ("my_fedprox",)


# --- the guard ------------------------------------------------------------------------------------


def test_the_guard_knows_plug_ins_that_were_named_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = Federation(config=config(), plugins=[write(tmp_path)])
    federation.plan()
    _floors.check()  # control: what was named passes
    stranger = f"{_floors.PLUGINS}.stranger"
    monkeypatch.setitem(sys.modules, stranger, ModuleType(stranger))
    with pytest.raises(_floors.NotOurCode, match="no plug-in that was named"):
        _floors.check()
    monkeypatch.delitem(sys.modules, stranger)
    (plugin,) = federation.plugins
    name = loading.module_name(plugin)
    monkeypatch.setitem(sys.modules, name, ModuleType(name))  # another one in its place
    with pytest.raises(_floors.NotOurCode, match="no plug-in that was named"):
        federation.run(tmp_path / "run")
    assert not (tmp_path / "run").exists()
