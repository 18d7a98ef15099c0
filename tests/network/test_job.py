"""The job of a study holds public names and no code; a site that is set up lets no code in.

The kits here are made up, in the form that provisioning gives them; one test makes real ones where
NVIDIA FLARE is installed.
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hubbub.errors import StudyError, UserError
from hubbub.network.flare.job import write_job
from hubbub.network.flare.kit import check_code, is_admin, is_server, prepare
from hubbub.network.flare.site_settings import FILE, Settings
from hubbub.network.key_files import roster_of
from hubbub.protocol.primitives.identity import Keys, Roster
from network.consortium import HOSPITALS, Consortium, table

ENGINE = pytest.mark.skipif(
    importlib.util.find_spec("nvflare") is None,
    reason="needs NVIDIA FLARE: pip install 'hubbub[net]'",
)
RIGHTS = {"submit_job": "any", "view": "any", "byoc": "any"}
AUTHORIZATION = {
    "format_version": "1.0",
    "permissions": {"project_admin": "any", "lead": RIGHTS, "member": {"view": "any"}},
}
CLIENT = "nvflare.app_common.job_launcher.client_process_launcher.ClientProcessJobLauncher"
SERVER = "nvflare.app_common.job_launcher.server_process_launcher.ServerProcessJobLauncher"


def component(name: str, path: str, **arguments: Any) -> dict[str, Any]:
    return {"id": name, "path": path, "args": arguments}


RESOURCES = {
    "client": {
        "class_allow_list": ["nvflare.app_common.np.np_trainer.NPTrainer"],
        "allow_log_streaming": True,
        "components": [
            component("resource_manager", "nvflare.Resources", num_of_gpus=2),
            component("process_launcher", CLIENT),
            component("site_log_streamer", "nvflare.SiteLogStreamer"),
        ],
    },
    "server": {
        "class_allow_list": [],
        "snapshot_persistor": {
            "path": "nvflare.Persistor",
            "args": {"storage": {"path": "nvflare.Storage", "args": {"root_dir": "/elsewhere"}}},
        },
        "components": [
            component("job_manager", "nvflare.Jobs", uri_root="/elsewhere"),
            component("process_launcher", SERVER),
            component("log_receiver", "nvflare.JobLogReceiver"),
        ],
    },
}
LOGS = {"version": 1, "loggers": {"root": {"level": "INFO", "handlers": ["consoleHandler"]}}}


@pytest.fixture
def kit(tmp_path) -> Path:
    return made_up(tmp_path / "cleveland", "client")


def made_up(folder: Path, kind: str) -> Path:
    """A kit as provisioning leaves it."""
    (folder / "startup").mkdir(parents=True)
    (folder / "startup" / f"fed_{kind}.json").write_text("{}")
    (folder / "local").mkdir()
    files = {"authorization": AUTHORIZATION, "resources": RESOURCES[kind], "log_config": LOGS}
    for name, content in files.items():
        (folder / "local" / f"{name}.json.default").write_text(json.dumps(content))
    return folder


def settings(tmp_path: Path, **changes: Any) -> Settings:
    return replace(Settings(home=str(tmp_path / "home")), **changes)


def local(kit: Path, name: str) -> Any:
    return json.loads((kit / "local" / name).read_text())


# The job ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def consortium(tmp_path_factory) -> Consortium:
    return Consortium.gather(tmp_path_factory.mktemp("job"), table(HOSPITALS, 2))


@pytest.fixture(scope="module")
def job(consortium) -> Path:
    roster = consortium.aggregator.roster
    return write_job(consortium.home / "job", consortium.study, roster, quorum=3)


def test_a_job_is_three_files_and_no_code(job):
    files = sorted(str(path.relative_to(job)) for path in job.rglob("*") if path.is_file())
    assert files == [
        "app/config/config_fed_client.json",
        "app/config/config_fed_server.json",
        "meta.json",
    ]


def test_a_job_goes_to_the_server_and_to_the_sites_of_the_roster(job):
    meta = json.loads((job / "meta.json").read_text())
    assert meta["deploy_map"] == {"app": ["server", *HOSPITALS, "node-1", "node-2"]}
    assert meta["min_clients"] == 3 + 2


def test_nothing_private_and_nothing_of_the_study_but_its_id_is_in_a_job(consortium, job):
    text = "".join(path.read_text() for path in job.rglob("*.json"))
    assert consortium.study.id.hex() in text
    for site in consortium.sites.values():
        assert str(site.home) not in text
        parts = [*site.keys.secret_parts().values(), site.keys.identity.verifying]
        assert not any(part.hex() in text for part in parts)
        assert not any(base64.b64encode(part).decode() in text for part in parts)
    assert "heart" not in text
    assert "epsilon" not in text


def test_a_job_names_installed_classes_alone_and_each_is_allowed(job, kit, tmp_path):
    prepare(kit, settings(tmp_path))
    allowed = local(kit, "resources.json")["class_allow_list"]
    paths = [path for file in job.rglob("*.json") for path in named(json.loads(file.read_text()))]
    ours = [path for path in paths if path.startswith("hubbub.")]
    assert len(paths) == 4
    assert len(ours) == 3
    assert all(any(path.startswith(prefix) for prefix in allowed) for path in paths)
    for path in ours:  # the module is there, whether or not the engine is
        assert importlib.util.find_spec(path.rpartition(".")[0]) is not None


def named(content: Any) -> list[str]:
    """The classes in a configuration."""
    if isinstance(content, list):
        return [path for one in content for path in named(one)]
    if not isinstance(content, dict):
        return []
    own = [content["path"]] if "path" in content else []
    return own + [path for one in content.values() for path in named(one)]


def test_a_party_whose_name_cannot_be_a_sites_is_refused(consortium, tmp_path):
    keys = [Keys.generate("aggregator", "aggregator"), Keys.generate("st.mary", "silo")]
    roster: Roster = roster_of([one.identity for one in keys])
    with pytest.raises(StudyError, match="names without dots"):
        write_job(tmp_path / "job", consortium.study, roster, quorum=1)
    assert not (tmp_path / "job").exists()


# The kit ------------------------------------------------------------------------------------


def test_a_prepared_kit_lets_nobodys_job_bring_code(kit, tmp_path):
    prepare(kit, settings(tmp_path))
    roles = local(kit, "authorization.json")["permissions"]
    assert {"project_admin", "org_admin", "lead", "member"} <= roles.keys()
    assert all(rights["byoc"] == "none" for rights in roles.values())
    assert roles["lead"]["submit_job"] == "any"
    assert roles["project_admin"]["submit_job"] == "any"
    assert "submit_job" not in roles["member"]


def test_a_prepared_kit_allows_classes_by_name_and_sends_no_logs(kit, tmp_path):
    prepare(kit, settings(tmp_path))
    found = local(kit, "resources.json")
    assert found["class_list_enforcement_mode"] == "enforce"
    assert found["class_allow_list"] == ["nvflare.collab.runtime.", "hubbub.network.flare."]
    assert found["allow_log_streaming"] is False
    assert [one["id"] for one in found["components"]] == ["resource_manager", "process_launcher"]


def test_a_sites_workers_are_started_again_and_the_servers_are_not(kit, tmp_path):
    server = made_up(tmp_path / "localhost", "server")
    for folder in (kit, server):
        prepare(folder, settings(tmp_path))
    launchers = [
        next(c["path"] for c in local(one, "resources.json")["components"] if "launcher" in c["id"])
        for one in (kit, server)
    ]
    assert launchers == ["hubbub.network.flare.sturdy.SturdyLauncher", SERVER]


def test_what_the_server_keeps_stays_below_its_kit(tmp_path):
    server = made_up(tmp_path / "localhost", "server")
    prepare(server, settings(tmp_path))
    assert "/elsewhere" not in (server / "local" / "resources.json").read_text()


def test_what_an_administrator_has_set_stays(kit, tmp_path):
    changed = json.loads(json.dumps(RESOURCES["client"]))
    changed["components"][0]["args"]["num_of_gpus"] = 7
    (kit / "local" / "resources.json").write_text(json.dumps(changed))
    prepare(kit, settings(tmp_path))
    assert local(kit, "resources.json")["components"][0]["args"] == {"num_of_gpus": 7}


def test_a_kit_can_be_prepared_again_and_is_the_same(kit, tmp_path):
    prepare(kit, settings(tmp_path))
    before = {path.name: path.read_bytes() for path in (kit / "local").iterdir()}
    prepare(kit, settings(tmp_path))
    assert {path.name: path.read_bytes() for path in (kit / "local").iterdir()} == before


def loosened(kit: Path) -> Path:
    """The administrator's own rule: a lead's jobs may bring code."""
    rule = {**AUTHORIZATION, "permissions": {"lead": RIGHTS, "member": {"view": "any"}}}
    (kit / "local" / "authorization.json").write_text(json.dumps(rule))
    return kit


def test_a_site_that_lets_code_in_is_refused_and_left_as_it_is(kit, tmp_path):
    loosened(kit)
    before = (kit / "local" / "authorization.json").read_bytes()
    with pytest.raises(UserError, match="inside the jobs of lead; forbid it, or say --allow-byoc"):
        prepare(kit, settings(tmp_path))
    assert (kit / "local" / "authorization.json").read_bytes() == before
    assert not (kit / "local" / FILE).exists()


def test_a_site_may_let_code_in_if_its_administrator_says_so(kit, tmp_path):
    prepare(loosened(kit), settings(tmp_path, allow_byoc=True))
    assert tomllib.loads((kit / "local" / FILE).read_text())["allow_byoc"] is True
    with pytest.raises(UserError, match="lead"):  # a worker looks again, whoever started it
        check_code(kit / "local", allowed=False)


def test_a_kit_holds_this_partys_settings_and_none_of_its_keys(kit, tmp_path):
    wanted = settings(tmp_path, data="/srv/records", pace=0.5, device="cpu")
    prepare(kit, wanted)
    assert Settings.read(kit / "local") == wanted


@pytest.mark.parametrize(
    "line", ["home = 3", "extra = 1", "pace = 'fast'", "allow_byoc = 1", "deadline = true", "="]
)
def test_settings_that_are_not_known_are_refused(tmp_path, line):
    home = "" if line.startswith("home") else f"home = '{tmp_path}'\n"
    (tmp_path / FILE).write_text(f"{home}{line}\n")
    with pytest.raises(UserError, match="settings"):
        Settings.read(tmp_path)


def test_a_folder_that_is_no_kit_is_refused(tmp_path):
    with pytest.raises(UserError, match="nvflare provision"):
        prepare(tmp_path, settings(tmp_path))


def test_a_kit_of_another_version_of_the_engine_is_refused(kit, tmp_path):
    (kit / "local" / "resources.json.default").unlink()
    with pytest.raises(UserError, match=r"resources\.json\.default"):
        prepare(kit, settings(tmp_path))


def test_the_kinds_of_kits_are_told_apart(kit, tmp_path):
    server = made_up(tmp_path / "localhost", "server")
    assert (is_server(server), is_server(kit)) == (True, False)
    (kit / "startup" / "fed_admin.json").write_text("{}")
    assert (is_admin(kit), is_admin(server)) == (True, False)


# With the engine ----------------------------------------------------------------------------


@ENGINE
@pytest.mark.filterwarnings("ignore")  # of the engine's own libraries
def test_real_kits_are_prepared_like_made_up_ones(consortium, tmp_path):
    from hubbub.network.flare.provision import ADMIN, provision

    roster = consortium.aggregator.roster
    kits = provision(tmp_path / "kits", roster, host="localhost", port=18002)
    assert kits.keys() == {party.name for party in roster.parties} | {ADMIN}
    assert is_server(kits["aggregator"])
    assert is_admin(kits[ADMIN])
    for name in ("aggregator", "cleveland", "node-1"):
        prepare(kits[name], settings(tmp_path))
        found = local(kits[name], "resources.json")
        assert not {"site_log_streamer", "log_receiver"} & {c["id"] for c in found["components"]}
        check_code(kits[name] / "local", allowed=False)


@ENGINE
@pytest.mark.filterwarnings("ignore")  # of the engine's own libraries
def test_every_class_that_a_job_names_can_be_loaded(job):
    for path in {
        path for file in job.rglob("*.json") for path in named(json.loads(file.read_text()))
    }:
        module, _, name = path.rpartition(".")
        assert callable(getattr(importlib.import_module(module), name))
