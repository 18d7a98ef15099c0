"""What a release is made of, and that nobody is told to install what cannot be had."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from deploy import provenance, release, verify_release

from hubbub import VERSION
from hubbub.core.study.study import Study

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
        "/opt/hubbub/bin/pip install './hubbub-0.2.0-py3-none-any.whl[net]'"
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
    apart = (
        "flower",
        "mlflow",
        "tensorboard",
    )  # which want other versions than hubbub is tested with
    named = [one for name, packages in extras.items() if name not in apart for one in packages]
    every = {re.split("[=<>~ ]", one)[0] for one in (*named, *needed)}
    assert every <= pins("constraints.txt").keys()


def test_two_builds_that_differ_are_no_release() -> None:
    same = {"a.whl": "1", "b.tar.gz": "2"}
    assert release.compared(same, dict(same)) == same
    for other in ({"a.whl": "1", "b.tar.gz": "3"}, {"a.whl": "1"}, {**same, "b.tar.gz.asc": "3"}):
        with pytest.raises(release.ReleaseError, match=r"two of b\.tar\.gz"):
            release.compared(same, other)


def stated(**changes: str) -> bytes:
    made = {"a.whl": "1" * 64, "b.tar.gz": "2" * 64} | changes
    pins = {"constraints.txt": "3" * 64}
    return provenance.written(
        provenance.statement(made, commit="4" * 40, builder="urn:x", materials=pins)
    )


def test_the_statement_names_every_file_and_says_no_time() -> None:
    content = json.loads(stated())
    assert {one["name"]: one["digest"]["sha256"] for one in content["subject"]} == {
        "a.whl": "1" * 64,
        "b.tar.gz": "2" * 64,
    }
    assert content["predicate"]["buildDefinition"]["externalParameters"] == {"commit": "4" * 40}
    assert stated() == stated()
    assert stated() != stated(**{"a.whl": "5" * 64})


def test_a_signed_statement_opens_with_its_key_and_no_other() -> None:
    key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    envelope = provenance.signed(stated(), key)
    assert provenance.opened(envelope, key.public_key()) == json.loads(stated())
    with pytest.raises(InvalidSignature):
        provenance.opened(envelope, other.public_key())
    forged = provenance.signed(stated(**{"a.whl": "5" * 64}), key)
    with pytest.raises(InvalidSignature):
        provenance.opened({**envelope, "payload": forged["payload"]}, key.public_key())


def signed_release(folder: Path, key: Ed25519PrivateKey) -> Path:
    """A release of two files, and the key that signs it, beside it."""
    out = folder / "dist"
    out.mkdir(parents=True)
    for name in ("a.whl", "b.tar.gz"):
        (out / name).write_text(f"bytes of {name}")
    made = release.hashes(out)
    (out / release.SUMS).write_text("".join(f"{one}  {name}\n" for name, one in made.items()))
    payload = provenance.written(
        provenance.statement(made, commit="4" * 40, builder="urn:x", materials={})
    )
    (out / provenance.STATEMENT).write_bytes(payload)
    (out / provenance.ENVELOPE).write_text(json.dumps(provenance.signed(payload, key)))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "key.pub").write_bytes(public)
    return out


def test_a_signed_release_verifies_by_the_command_on_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = signed_release(tmp_path, Ed25519PrivateKey.generate())
    assert verify_release.main([str(out), str(tmp_path / "key.pub")]) == 0
    said = capsys.readouterr().out
    assert "4" * 40 in said
    assert "2 files, all as signed" in said
    page = (ROOT / "docs" / "project" / "releases.md").read_text(encoding="utf-8")
    assert "python deploy/verify_release.py FOLDER release-key.pub" in page
    assert verify_release.main([str(out)]) == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.whl", "other bytes"),
        ("c.whl", "a file more"),
        ("b.tar.gz", None),
        (release.SUMS, "1  a.whl\n"),
        (provenance.STATEMENT, "{}"),
        (provenance.ENVELOPE, "{}"),
        (provenance.ENVELOPE, None),
        ("../key.pub", "no key"),
    ],
)
def test_what_was_changed_after_it_was_signed_does_not_verify(
    tmp_path: Path, name: str, text: str | None
) -> None:
    out = signed_release(tmp_path, Ed25519PrivateKey.generate())
    (out / name).unlink() if text is None else (out / name).write_text(text)
    assert verify_release.main([str(out), str(tmp_path / "key.pub")]) == 1


def test_a_release_that_another_has_signed_does_not_verify(tmp_path: Path) -> None:
    out = signed_release(tmp_path / "one", Ed25519PrivateKey.generate())
    signed_release(tmp_path / "other", Ed25519PrivateKey.generate())
    assert verify_release.main([str(out), str(tmp_path / "other" / "key.pub")]) == 1


def test_kinds_and_builders_of_the_statement_are_uris() -> None:
    """By SLSA `buildType` and `builder.id`, by in-toto `uri`."""
    predicate = json.loads(stated())["predicate"]
    definition = predicate["buildDefinition"]
    for uri in (
        definition["buildType"],
        definition["resolvedDependencies"][0]["uri"],
        release.UNNAMED,
    ):
        assert re.fullmatch(r"urn:hubbub:[a-z0-9:-]+", uri)


def test_the_release_key_is_an_ed25519_key(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "key.pem").write_bytes(pem)
    found = provenance.release_key(tmp_path / "key.pem")
    assert found.public_key() == key.public_key()
    (tmp_path / "key.pem").write_bytes(b"no key")
    with pytest.raises(ValueError, match="PEM"):
        provenance.release_key(tmp_path / "key.pem")


def test_a_release_without_a_key_says_that_it_is_not_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RELEASE_KEY", raising=False)
    release._state(tmp_path, {"a.whl": "1" * 64}, "4" * 40, {})
    assert "not signed" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == [provenance.STATEMENT]
    monkeypatch.setenv("RELEASE_KEY", str(tmp_path / "missing.pem"))
    with pytest.raises(release.ReleaseError, match="RELEASE_KEY"):
        release._state(tmp_path, {"a.whl": "1" * 64}, "4" * 40, {})


def test_the_sbom_says_which_version_it_is_of() -> None:
    bare = {"metadata": {"component": {"name": "hubbub"}}, "components": [{"name": "ü"}]}
    content = json.loads(release.with_version(json.dumps(bare), VERSION))
    assert content["metadata"]["component"] == {"name": "hubbub", "version": VERSION}
    assert content["components"] == bare["components"]


def test_the_sdist_has_what_its_own_tests_read() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    for path in (".ci/run", ".github/workflows/test.yml", "CITATION.cff", "LICENSE", "Makefile"):
        assert (ROOT / path).is_file()
        assert any(
            path == one.strip("/") or path.startswith(f"{one.strip('/')}/") for one in included
        )
    for file in project["project"]["license-files"]:
        assert (ROOT / file).is_file()


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


def test_citation_and_changelog_name_the_same_version_and_day() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    (day,) = re.findall(r"(?m)^date-released: (\S+)$", citation)
    assert f"\nversion: {VERSION}\n" in citation
    assert f"\n## [{VERSION}] - {day}\n" in changelog


def test_badges_say_what_the_tree_says() -> None:
    path = ROOT / "docs" / "pictures" / "badges.py"
    written = runpy.run_path(str(path))["badges"]()
    kept = {one.name: one.read_text(encoding="utf-8") for one in path.parent.glob("badge-*.svg")}
    assert kept == written
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in written:
        assert f"docs/pictures/{name}" in readme


def test_pages_and_files_name_the_version_that_is_released() -> None:
    for path in TOLD:
        named = re.findall(r"hubbub[-:](\d+\.\d+\.\d+)", path.read_text(encoding="utf-8"))
        assert set(named) <= {VERSION}, path
