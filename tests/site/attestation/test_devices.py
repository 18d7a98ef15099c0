"""Evidence from devices, as Linux and Gramine offer them: every exchange here is made up from the
public interfaces of the kernel; no such device was at hand."""

from __future__ import annotations

import ctypes
import json
import struct
from pathlib import Path

import cbor2
import pytest
from tests.site.attestation.samples import GOOD

from hubbub.core.errors import UserError
from hubbub.site.attestation.devices import MachineAttester, of_build, of_machine, own_code

DATA = bytes(range(64))
TSM = "sys/kernel/config/tsm/report"


def device(root: Path, path: str) -> Path:
    """A file that stands for a device."""
    place = root / path
    place.parent.mkdir(parents=True)
    place.write_bytes(b"")
    return root


def test_a_report_of_an_snp_guest_is_asked_for_by_an_ioctl(tmp_path: Path) -> None:
    """struct snp_guest_request_ioctl: version, request, answer, the firmware's error."""
    report = GOOD["milan"].quote

    def ioctl(_file: int, number: int, buffer: bytearray) -> None:
        version, request, answer, _ = struct.unpack("<BxxxxxxxQQQ", buffer)
        assert (number, version, len(buffer)) == (0xC0205300, 1, 32)
        asked = ctypes.string_at(request, 96)
        assert (asked[:64], asked[64:]) == (DATA, bytes(32))
        said = struct.pack("<II24x", 0, len(report)) + report
        ctypes.memmove(answer, said, len(said))

    collateral = tmp_path / "collateral"
    collateral.write_bytes(GOOD["milan"].collateral)
    root = device(tmp_path / "root", "dev/sev-guest")
    made = MachineAttester(collateral, root=root, ioctl=ioctl)("snp", DATA, 0)
    assert made == GOOD["milan"].evidence
    assert made.verified(GOOD["milan"].at).platform == "snp"


def test_a_firmware_that_refuses_is_told(tmp_path: Path) -> None:
    def ioctl(_file: int, _number: int, buffer: bytearray) -> None:
        answer = struct.unpack("<BxxxxxxxQQQ", buffer)[2]
        ctypes.memmove(answer, struct.pack("<II", 0x16, 0), 8)

    root = device(tmp_path, "dev/sev-guest")
    with pytest.raises(UserError, match="with the status 22"):
        MachineAttester(root=root, ioctl=ioctl)("snp", DATA, 0)


def nsm(answer: object) -> object:
    """A Nitro Security Module: struct nsm_raw, two pairs of an address and a length."""

    def ioctl(_file: int, number: int, buffer: bytearray) -> None:
        request, size, place, most = struct.unpack("<QQQQ", buffer)
        assert (number, most) == (0xC0200A00, 0x3000)
        said = {"user_data": DATA, "nonce": None, "public_key": None}
        assert cbor2.loads(ctypes.string_at(request, size)) == {"Attestation": said}
        words = cbor2.dumps(answer)
        ctypes.memmove(place, words, len(words))
        buffer[:] = struct.pack("<QQQQ", request, size, place, len(words))

    return ioctl


def test_a_document_of_a_nitro_enclave_is_asked_for_in_cbor(tmp_path: Path) -> None:
    document = GOOD["nitro"].quote
    root = device(tmp_path, "dev/nsm")
    ioctl = nsm({"Attestation": {"document": document}})
    made = MachineAttester(tmp_path / "none", root=root, ioctl=ioctl)("nitro", DATA, 0)
    assert made == GOOD["nitro"].evidence


def test_a_module_that_refuses_is_told(tmp_path: Path) -> None:
    root = device(tmp_path, "dev/nsm")
    with pytest.raises(UserError, match="refuses"):
        MachineAttester(root=root, ioctl=nsm({"Error": "InvalidOperation"}))("nitro", DATA, 0)


class Kernel(MachineAttester):
    """configfs-tsm: a folder that is made has files, and a write makes a quote."""

    def __init__(self, root: Path, provider: str, quote: bytes, writers: int = 1) -> None:
        super().__init__(root=root)
        self.folder, self._said = root / TSM, (provider, quote, writers)
        self.folder.mkdir(parents=True)

    def _tsm(self, platform: str, report_data: bytes) -> bytes:
        provider, quote, writers = self._said
        made = Path.mkdir, Path.write_bytes, Path.rmdir

        def mkdir(path: Path) -> None:
            made[0](path)
            for name, text in (("generation", "0"), ("provider", provider + "\n")):
                (path / name).write_text(text)
            made[1](path / "outblob", b"")

        def write(path: Path, content: bytes) -> None:
            made[1](path, content)
            assert (path.name, content) == ("inblob", DATA)
            made[1](path.with_name("outblob"), quote)
            path.with_name("generation").write_text(str(writers))

        def rmdir(path: Path) -> None:
            for one in path.iterdir():
                one.unlink()
            made[2](path)

        with pytest.MonkeyPatch.context() as patch:
            for name, fake in (("mkdir", mkdir), ("write_bytes", write), ("rmdir", rmdir)):
                patch.setattr(Path, name, fake)
            return super()._tsm(platform, report_data)


@pytest.mark.parametrize("padding", [0, 3000])
def test_a_tdx_quote_comes_from_configfs_as_intels_service_pads_it(
    tmp_path: Path, padding: int
) -> None:
    kernel = Kernel(tmp_path, "tdx_guest", GOOD["tdx"].quote[:4936] + bytes(padding))
    made = kernel("tdx", DATA, 0)
    assert made.quote == GOOD["tdx"].quote
    assert list(kernel.folder.iterdir()) == []


def test_an_snp_report_comes_from_configfs_where_there_is_one(tmp_path: Path) -> None:
    made = Kernel(tmp_path, "sev_guest", GOOD["milan"].quote)("snp", DATA, 0)
    assert made.quote == GOOD["milan"].quote


@pytest.mark.parametrize(("provider", "writers"), [("sev_guest", 1), ("tdx_guest", 2)])
def test_a_quote_of_another_provider_or_writer_is_not_taken(
    tmp_path: Path, provider: str, writers: int
) -> None:
    kernel = Kernel(tmp_path, provider, GOOD["tdx"].quote, writers)
    with pytest.raises(UserError, match="provider"):
        kernel("tdx", DATA, 0)
    assert list(kernel.folder.iterdir()) == []


def test_an_sgx_quote_comes_from_gramines_files(tmp_path: Path) -> None:
    folder = tmp_path / "dev/attestation"
    folder.mkdir(parents=True)
    (folder / "quote").write_bytes(GOOD["sgx"].quote)
    made = MachineAttester(root=tmp_path)("sgx", DATA, 0)
    assert made.quote == GOOD["sgx"].quote
    assert (folder / "user_report_data").read_bytes() == DATA


@pytest.mark.parametrize("platform", ["sgx", "tdx", "snp", "nitro"])
def test_a_machine_without_a_device_says_so(tmp_path: Path, platform: str) -> None:
    with pytest.raises(UserError, match=f"that makes {platform} evidence"):
        MachineAttester(root=tmp_path)(platform, DATA, 0)


# What to pin -----------------------------------------------------------------------------------


def test_a_trust_domains_measurements_are_read_from_its_quote(tmp_path: Path) -> None:
    said = GOOD["tdx"].evidence.verified(GOOD["tdx"].at).measurements
    kernel = Kernel(tmp_path, "tdx_guest", GOOD["tdx"].quote)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}.DATA", bytes(64))
        found = of_machine("tdx", kernel)
    assert found == {name: said[name].hex() for name in found}
    assert len(found) == 5


def test_builds_say_what_to_pin(tmp_path: Path) -> None:
    signed = bytearray(1808)
    signed[:16] = bytes.fromhex("06000000e10000000000010000000000")
    signed[960:992] = bytes(range(32))
    (tmp_path / "hubbub.sig").write_bytes(signed)
    platform, found = of_build(tmp_path / "hubbub.sig")
    assert (platform, found["mr_enclave"]) == ("sgx", bytes(range(32)).hex())
    stated = {"HashAlgorithm": "Sha384", "PCR0": "ab" * 48, "PCR1": "cd" * 48}
    (tmp_path / "eif.json").write_text(json.dumps({"Measurements": stated}))
    assert of_build(tmp_path / "eif.json") == ("nitro", {"pcr0": "ab" * 48, "pcr1": "cd" * 48})
    assert of_machine("software", MachineAttester()) == {"code": own_code().hex()}
    for content in (b"", b"{}", bytes(1808), b"[" * 9000):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(UserError, match=r"expected a Gramine \.sig"):
            of_build(tmp_path / "other")
    with pytest.raises(UserError, match="expected --build"):
        of_machine("nitro", MachineAttester())
