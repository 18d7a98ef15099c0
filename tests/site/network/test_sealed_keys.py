"""Keys whose passphrase only a PKCS#11 token opens, as the runbook says."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hubbub.desk.cli.main import main

MODULE = Path("/usr/lib/softhsm/libsofthsm2.so")
OAEP = ["--mechanism", "RSA-PKCS-OAEP", "--hash-algorithm", "SHA-1", "--mgf", "MGF1-SHA1"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def made(home: Path, passphrase: bytes) -> bytes:
    """Closed keys, and what they say."""
    given = ("--passphrase-fd", _descriptor(passphrase))
    assert main(["keygen", "cleveland", "--home", str(home), *given]) == 0
    return (home / "keys.toml").read_bytes()


def _descriptor(passphrase: bytes) -> str:
    """A passphrase on a descriptor, which hubbub reads and closes."""
    read, write = os.pipe()
    os.write(write, passphrase)
    os.close(write)
    return str(read)


def opens(home: Path, passphrase: bytes, capsys: pytest.CaptureFixture[str]) -> bool:
    """Whether it opens the keys: a party without a roster says so only then."""
    given = ("--passphrase-fd", _descriptor(passphrase))
    assert main(["join", "--home", str(home), *given]) == 2
    return "roster" in capsys.readouterr().err


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A token of SoftHSM's with an RSA key; the words with which it is asked."""
    if not MODULE.is_file() or shutil.which("pkcs11-tool") is None:
        pytest.skip("needs softhsm2 and opensc")
    (tmp_path / "tokens").mkdir()
    settings = tmp_path / "softhsm2.conf"
    settings.write_text(f"directories.tokendir = {tmp_path / 'tokens'}\nlog.level = ERROR\n")
    monkeypatch.setenv("SOFTHSM2_CONF", str(settings))
    monkeypatch.setenv("PIN", "5678")
    new = "softhsm2-util --init-token --free --label hubbub --so-pin 1234 --pin 5678"
    subprocess.run(new.split(), check=True, capture_output=True)
    asked = ["pkcs11-tool", "--module", str(MODULE), "--token-label", "hubbub"]
    asked += ["--login", "--pin", "env:PIN"]
    key = "--keypairgen --key-type rsa:3072 --id 01 --label hubbub-passphrase"
    subprocess.run([*asked, *key.split()], check=True, capture_output=True)
    return asked


def test_a_token_opens_the_keys_and_the_sealed_passphrase_does_not(token, home, tmp_path, capsys):
    passphrase = b"correct horse battery staple"
    kept = made(home, passphrase)
    public, plain = tmp_path / "pub.der", tmp_path / "pass"
    read = ["--read-object", "--type", "pubkey", "--id", "01", "--output-file", str(public)]
    subprocess.run([*token, *read], check=True, capture_output=True)
    plain.write_bytes(passphrase)
    options = ["-pkeyopt", "rsa_padding_mode:oaep", "-pkeyopt", "rsa_oaep_md:sha1"]
    seal = ["openssl", "pkeyutl", "-encrypt", "-pubin", "-keyform", "DER", "-inkey", str(public)]
    sealed = subprocess.run(
        [*seal, "-in", str(plain), *options], check=True, capture_output=True
    ).stdout
    (tmp_path / "sealed").write_bytes(sealed)
    opened = subprocess.run(
        [*token, "--decrypt", "--id", "01", *OAEP, "--input-file", str(tmp_path / "sealed")],
        check=True,
        capture_output=True,
    ).stdout
    assert opens(home, opened, capsys)
    assert not opens(home, sealed.hex().encode(), capsys)
    assert passphrase not in kept
