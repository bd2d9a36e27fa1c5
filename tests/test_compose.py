"""What deploy/'s compose files need where they are started, beside what shuts them in."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml

from tests.test_deploy import COMPOSE, DEPLOY, ROOT, composed, steps

LOADS = {"rehearsal.yaml": ["rehearsal"], "compose.yaml": ["site", "party"]}
"""Services whose processes load libsodium: `rbcl` writes it to /tmp at each start."""


def no_library_is_loaded_from(service: dict[str, Any]) -> bool:
    """Tell whether /tmp is mounted as Docker does it by itself, `noexec`."""
    (mounted,) = [m for m in service["tmpfs"] if m.startswith("/tmp:")]
    return "exec" not in mounted.partition(":")[2].split(",")


@pytest.mark.parametrize("name", COMPOSE)
def test_libsodium_can_be_loaded_where_a_party_is(name: str) -> None:
    services = composed(name)["services"]
    assert [n for n, s in services.items() if not no_library_is_loaded_from(s)] == LOADS[name]
    assert no_library_is_loaded_from({"tmpfs": ["/tmp:mode=1777,noexec"]})  # the controls
    assert no_library_is_loaded_from({"tmpfs": ["/tmp:mode=1777,size=256m"]})
    page = (ROOT / "docs" / "how-to" / "install.md").read_text("utf-8")
    assert "--read-only --tmpfs /tmp:exec " in page and "--tmpfs /tmp " not in page


REQUIRED = re.compile(r"\$\{(\w+):\?")
COMMAND = re.compile(r"^#? *((?:\w+=\S+ )*docker compose .*)$", re.M)


def lacking(command: str) -> list[str]:
    """Return what a compose file asks for and a command does not give."""
    (name,) = [one for one in COMPOSE if f"-f deploy/{one}" in command]
    asked = {*REQUIRED.findall((DEPLOY / name).read_text("utf-8"))}
    given = dict(re.findall(r"(\w+)=(\S+)", command.partition("docker compose")[0]))
    if "--env-file site.env" in command:
        return []  # the page's table and the head of the file say what it holds
    relative = [n for n, value in given.items() if not value.startswith(('"$PWD/', "/"))]
    return sorted(asked - {*given}) + relative


def test_each_compose_command_gives_what_the_file_asks_for() -> None:
    """Compose reads the whole file for every command, also for `down` and `exec`."""
    texts = [(DEPLOY / name).read_text("utf-8") for name in (*COMPOSE, "README.md")]
    commands = [found for text in texts for found in COMMAND.findall(text)]
    assert len(commands) == 6 and [lacking(one) for one in commands] == [[]] * 6
    assert lacking("docker compose -f deploy/rehearsal.yaml down --volumes") == ["PILOT"]
    assert lacking("PILOT=./pilot docker compose -f deploy/rehearsal.yaml up") == ["PILOT"]
    used = {*re.findall(r"\$\{(\w+)", (DEPLOY / "compose.yaml").read_text("utf-8"))}
    for text in texts[1:]:
        assert all(re.search(rf"\b{name}\b", text) for name in used)


def test_a_broker_and_a_carrier_come_back_and_a_party_prints_when() -> None:
    """Docker starts no container of `on-failure` again after a reboot; the page says so."""
    services = composed("compose.yaml")["services"]
    restarts = {name: service["restart"] for name, service in services.items()}
    assert restarts == {
        "broker": "unless-stopped", "site": "on-failure:5",
        "party": "on-failure:5", "carrier": "unless-stopped",
    }  # fmt: skip
    assert "needs `up -d` once more" in (DEPLOY / "README.md").read_text("utf-8")


def test_a_rehearsal_s_configuration_names_the_folder_that_it_is_mounted_at() -> None:
    from secure_fgl.data.own._pilot import pilot_files

    service = composed("rehearsal.yaml")["services"]["rehearsal"]
    (target,) = [v["target"] for v in service["volumes"] if v["type"] == "bind"]

    def found(folder: str) -> bool:
        told = yaml.safe_load(pilot_files(PurePosixPath(folder), "node", organisations=True)[
            "config.yaml"
        ])  # fmt: skip
        # The image names no WORKDIR at its end, so paths count from /.
        return f"/{told['data']['root']}" == f"{target}/data" and (
            f"/{told['policy']}" == f"{target}/policy.yaml"
        )

    assert "WORKDIR" not in [word for word, _ in steps("Dockerfile")][steps_of_last("Dockerfile") :]
    assert found("pilot") and not found("trial")  # the control


def steps_of_last(image: str) -> int:
    """Return where the last stage of an image begins."""
    return max(n for n, (word, _) in enumerate(steps(image)) if word == "FROM")
