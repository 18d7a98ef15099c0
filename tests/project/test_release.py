"""What a release is made of, and that nobody is told to install what cannot be had."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from deploy import release

from hubbub import VERSION
from hubbub.study import Study

ROOT = Path(__file__).parents[2]
LOCKED = re.compile(r"(?m)^([a-z0-9-]+)==([^\s;]+)")
TOLD = [
    path
    for folder in ("src", "docs", "deploy", "experiments", "benchmarks", "fuzz", ".")
    for path in ROOT.joinpath(folder).glob("*" if folder == "." else "**/*")
    if path.suffix in {".py", ".md", ".service", ".yaml", ".toml"}
    or path.name in {"Makefile", "Containerfile"}
]


def pins(name: str) -> dict[str, str]:
    return dict(LOCKED.findall((ROOT / name).read_text(encoding="utf-8")))


def test_nobody_is_told_to_install_hubbub_from_an_index() -> None:
    """The project is on none: whoever took its name there would be installed instead."""
    from_index = re.compile(r"pip install[^\n#|`]*?[\s'\"](hubbub)(?![-/\w]|'s )")
    assert from_index.search("pip install --upgrade 'hubbub[net]'")
    assert not from_index.search(
        "/opt/hubbub/bin/pip install './hubbub-0.1.0-py3-none-any.whl[net]'"
    )
    texts = {path: path.read_text(encoding="utf-8") for path in TOLD if ".git" not in path.parts}
    assert len(texts) > 300
    assert [path for path, text in texts.items() if from_index.search(text)] == []


def test_every_package_of_the_image_has_the_version_of_the_tests_and_a_hash() -> None:
    constraints = pins("constraints.txt")
    for name in release.LOCKS:
        text = (ROOT / "deploy" / name).read_text(encoding="utf-8")
        locked = {
            package: version.split("+")[0] for package, version in pins(f"deploy/{name}").items()
        }
        assert locked.items() <= constraints.items()
        packages = re.split(r"(?m)^(?=[a-z0-9-]+==)", text)[1:]
        assert len(packages) == len(locked) > 0
        assert [one for one in packages if "--hash=sha256:" not in one] == []


def test_what_a_party_imports_is_in_the_locks() -> None:
    """`make lock` was run after the last change of the dependencies."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [
        *project["dependencies"],
        *(one for name in ("learn", "net", "attest") for one in extras[name]),
    ]
    image = {package for name in release.LOCKS for package in pins(f"deploy/{name}")}
    assert {re.split("[=<>~ ]", one)[0] for one in needed} <= image
    node = pins("deploy/requirements-node.txt")
    learns = {re.split("[=<>~ ]", one)[0] for one in extras["learn"]}
    assert {re.split("[=<>~ ]", one)[0] for one in needed} - learns <= node.keys()
    assert node.items() <= pins("deploy/requirements.txt").items()
    every = {re.split("[=<>~ ]", one)[0] for one in sum(extras.values(), needed)}
    assert every <= pins("constraints.txt").keys()


def test_two_builds_that_differ_are_no_release() -> None:
    same = {"a.whl": "1", "b.tar.gz": "2"}
    assert release.compared(same, dict(same)) == same
    for other in ({"a.whl": "1", "b.tar.gz": "3"}, {"a.whl": "1"}, {**same, "b.tar.gz.asc": "3"}):
        with pytest.raises(release.ReleaseError, match=r"two of b\.tar\.gz"):
            release.compared(same, other)


def test_what_is_not_committed_is_not_released(tmp_path: Path) -> None:
    with pytest.raises(release.ReleaseError, match="expected a git checkout"):
        release.release(tmp_path, tmp_path / "dist")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "new.py").write_text("")
    with pytest.raises(release.ReleaseError, match="expected a checkout without changes"):
        release.release(tmp_path, tmp_path / "dist")


def test_every_silo_of_the_trial_is_a_service_with_a_volume_of_its_own() -> None:
    names = Study.load(ROOT / "deploy" / "trial.toml").parties.names
    compose = (ROOT / "deploy" / "compose-trial.yaml").read_text(encoding="utf-8")
    parties = re.findall(r"(?m)^  ([a-z-]+):\n    <<: \*party", compose)
    assert parties == ["aggregator", *names]
    assert re.findall(r'"([a-z-]+):/var/lib/hubbub"', compose) == parties


def test_pages_and_files_name_the_version_that_is_released() -> None:
    for path in TOLD:
        named = re.findall(r"hubbub[-:](\d+\.\d+\.\d+)", path.read_text(encoding="utf-8"))
        assert set(named) <= {VERSION}, path
