"""`hubbub attest` on the command line: exit codes, what is printed, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.site.attestation.samples import DATA, GOOD, Sample

from hubbub.desk.cli.main import main
from hubbub.site.attestation.devices import own_code


def policy(folder: Path, sample: Sample, **more: str) -> Path:
    """A policy that the sample meets, but for its firmware."""
    found = sample.evidence.verified(sample.at)
    first = next(iter(found.measurements))
    stated = {"platform": f'"{sample.platform}"'}
    stated["measurements"] = f'[{{{first}="{found.measurements[first].hex()}"}}]'
    path = folder / "policy.toml"
    path.write_text("\n".join(f"{key} = {value}" for key, value in (stated | more).items()))
    return path


def verified(folder: Path, name: str, **more: str) -> list[str]:
    """The arguments that verify a sample."""
    sample = GOOD[name]
    (folder / "quote").write_bytes(sample.quote)
    (folder / "collateral").write_bytes(sample.collateral)
    arguments = ["attest", "verify", str(folder / "quote"), "--at", str(sample.at)]
    arguments += ["--policy", str(policy(folder, sample, **more))]
    return arguments + (["--collateral", str(folder / "collateral")] if sample.collateral else [])


def answered(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> tuple[int, Any]:
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("milan", {"revocation": "false"}),
        ("turin", {"revocation": "false", "minimum_tcb": "{fmc = 1, microcode = 81}"}),
        ("tdx", {}),
        ("nitro", {}),
        (
            "sgx",
            {
                "statuses": '["ConfigurationAndSWHardeningNeeded"]',
                "advisories": '["INTEL-SA-00289", "INTEL-SA-00615"]',
            },
        ),
    ],
)
def test_evidence_that_is_enough_exits_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, more: dict[str, str]
) -> None:
    code, said = answered(capsys, verified(tmp_path, name, **more))
    assert (code, said["holds"], said["rule"]) == (0, True, None)
    assert said["claims"]["platform"] == GOOD[name].platform


@pytest.mark.parametrize(
    ("name", "more", "rule"),
    [
        ("milan", {}, "revocation"),
        ("milan", {"revocation": "false", "minimum_tcb": "{snp = 25}"}, "tcb"),
        ("tdx", {"measurements": f'[{{mr_td="{"ab" * 48}"}}]'}, "measurement"),
        ("tdx", {"minimum_tcb": "{tcb_evaluation = 18}"}, "tcb"),
        ("sgx", {}, "status"),
        ("nitro-debug", {}, "debug"),
    ],
)
def test_evidence_that_is_not_enough_exits_with_1_and_names_the_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, more: dict[str, str], rule: str
) -> None:
    code, said = answered(capsys, verified(tmp_path, name, **more))
    assert (code, said["holds"], said["rule"]) == (1, False, rule)
    assert main(verified(tmp_path, name, **more)) == 1
    assert f"“{rule}”" in capsys.readouterr().out


def test_certificates_may_have_the_line_ends_of_another_system(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = verified(tmp_path, "milan", revocation="false")
    chain = tmp_path / "collateral"
    chain.write_bytes(chain.read_bytes().rstrip().replace(b"\n", b"\r\n"))
    assert answered(capsys, arguments)[0] == 0


def test_the_report_data_is_compared_if_it_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = verified(tmp_path, "tdx")
    data = GOOD["tdx"].evidence.verified(GOOD["tdx"].at).report_data.hex()
    assert answered(capsys, [*arguments, "--report-data", data])[0] == 0
    code, said = answered(capsys, [*arguments, "--report-data", "ab" * 64])
    assert (code, said["rule"]) == (1, "report-data")


def test_the_age_of_a_document_is_compared_if_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = verified(tmp_path, "nitro")
    assert answered(capsys, [*arguments, "--max-age", "300"])[0] == 0
    code, said = answered(capsys, [*arguments, "--max-age", "100"])
    assert (code, said["rule"]) == (1, "freshness")


def test_no_age_is_told_of_what_has_no_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be said to be made within these seconds."""
    arguments = verified(tmp_path, "milan", revocation="false")
    assert main([*arguments, "--max-age", "1"]) == 2
    assert "got that of snp, which has none" in capsys.readouterr().err


def test_a_nitro_document_may_come_in_base64(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Debug mode is refused, so what it says is what shows that it was read."""
    arguments = verified(tmp_path, "nitro-base64")
    arguments[2] = str(DATA / "nitro/valid-attestation-doc-base64")
    code, said = answered(capsys, arguments)
    assert (code, said["rule"], said["claims"]["debug"]) == (1, "debug", True)


@pytest.mark.parametrize(
    "change",
    [
        ["--at", "yesterday"],
        ["--policy", "/nowhere"],
        ["--collateral", "/nowhere"],
        ["--report-data", "ab"],
    ],
)
def test_bad_input_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: list[str]
) -> None:
    assert main([*verified(tmp_path, "tdx"), *change]) == 2
    assert capsys.readouterr().err.startswith("hubbub: expected")


def test_a_policy_that_is_none_exits_with_2(tmp_path: Path) -> None:
    arguments = verified(tmp_path, "tdx")
    for text in ("platform = 3", "platform", 'platform = "tdx"\nmeasurements = []', "\0"):
        (tmp_path / "policy.toml").write_text(text)
        assert main(arguments) == 2


def test_evidence_made_here_is_verified_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["attest", "measure"]) == 0
    (tmp_path / "policy.toml").write_text(capsys.readouterr().out)
    assert own_code().hex() in (tmp_path / "policy.toml").read_text()
    quote, data = tmp_path / "quote", "cd" * 64
    made = ["attest", "quote", "--platform", "software", "--report-data", data, "--out", str(quote)]
    assert main(made) == 0
    checked = ["attest", "verify", str(quote), "--policy", str(tmp_path / "policy.toml")]
    assert main([*checked, "--report-data", data]) == 0
    assert main([*checked, "--report-data", "ab" * 64]) == 1


def test_a_machine_without_the_device_exits_with_2(tmp_path: Path) -> None:
    out = str(tmp_path / "quote")
    arguments = ["attest", "quote", "--platform", "nitro", "--report-data", "00" * 64]
    assert main([*arguments, "--out", out]) == 2
