"""`hubbub attest`: evidence of this machine made, evidence of others verified, builds measured."""

from __future__ import annotations

import argparse
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hubbub.core.disk import read_bytes, read_text, toml_table, why_of
from hubbub.core.errors import AttestationError, UserError
from hubbub.core.study.attested_roles import PLATFORMS, role_from
from hubbub.core.verification.attestation.policy import (
    AllOf,
    EvidenceRule,
    MadeNear,
    PlatformEvidence,
    ReportDataIs,
    policy_of,
)
from hubbub.core.verification.attestation.study_attestation import clock
from hubbub.desk.cli.terminal import add_command, answer, writing
from hubbub.site.attestation.devices import MachineAttester, of_build, of_machine

_ATTEST = "evidence of attested machines: make it, verify it, and say what to pin"
_QUOTE = "make evidence on this machine, over 64 bytes"
_VERIFY = "verify evidence and hold it against a policy: exit 0 if it is enough, 1 if not"
_MEASURE = "what to pin for a build, or for this machine"
_PLATFORM = "which one this machine has"
_DATA = "64 bytes in hexadecimal digits that the evidence is bound to"
_AT = "time of verification, as 2026-01-31T12:00 (UTC) or in seconds since 1970; default: now"
_AGE = "of a document that says when it was made, at the time of verification; default: any"
_MOST = 1 << 18  # bytes of a file


def add_commands(commands: Any) -> None:
    """Register the commands."""
    attest = commands.add_parser("attest", help=_ATTEST, description=_ATTEST)
    parts = attest.add_subparsers(metavar="WHAT", required=True)
    quote = add_command(parts, "quote", _QUOTE, _quote)
    quote.add_argument("--platform", choices=sorted(PLATFORMS), required=True, help=_PLATFORM)
    quote.add_argument("--report-data", required=True, metavar="HEX", help=_DATA)
    quote.add_argument("--out", type=Path, required=True, metavar="FILE", help="the quote")
    verify = add_command(parts, "verify", _VERIFY, _verify)
    verify.add_argument("file", type=Path, help="a quote, a report or a document")
    verify.add_argument(
        "--policy", type=Path, required=True, help="TOML with the keys of [attestation.silo]"
    )
    verify.add_argument("--collateral", type=Path, metavar="FILE", help="what the vendor publishes")
    verify.add_argument("--at", default="", metavar="TIME", help=_AT)
    verify.add_argument("--report-data", default="", metavar="HEX", help=_DATA)
    verify.add_argument("--max-age", type=int, metavar="SECONDS", help=_AGE)
    measure = add_command(parts, "measure", _MEASURE, _measure)
    measure.add_argument(
        "--platform", choices=sorted(PLATFORMS), default="software", help=_PLATFORM
    )
    measure.add_argument(
        "--build", type=Path, metavar="FILE", help="Gramine's .sig, or JSON of nitro-cli"
    )


def _quote(options: argparse.Namespace) -> int:
    data = _report_data(options.report_data)
    quote = MachineAttester()(options.platform, data, clock())
    with writing(options.out):
        options.out.write_bytes(quote.quote)
    said = {"platform": quote.platform, "bytes": len(quote.quote), "out": str(options.out)}
    answer(options, said, f"written: {options.out}, {len(quote.quote)} bytes")
    return 0


def _verify(options: argparse.Namespace) -> int:
    role, at = role_from(_policy(options.policy)), _time(options.at)
    data = _report_data(options.report_data) if options.report_data else None
    quote = _content(options.file)
    evidence = PlatformEvidence(
        platform=role.platform,
        quote=_from_base64(quote) if role.platform == "nitro" else quote,
        collateral=_collateral(options.collateral),
    )
    rules: list[EvidenceRule] = [policy_of(role)]
    if options.max_age is not None:
        rules.append(MadeNear(at, options.max_age))
    if data is not None:
        rules.append(ReportDataIs(data))
    told: dict[str, Any] = {"at": at, "policy": AllOf(rules).words()}
    try:
        claims = evidence.verified(at)
        told["claims"] = claims.to_dict()
        AllOf(rules).check(claims)
    except AttestationError as error:
        told |= {"holds": False, "rule": error.rule, "why": str(error)}
        answer(options, told, f"does not hold, by the rule “{error.rule}”: {error}")
        return 1
    answer(options, {**told, "holds": True, "rule": None, "why": None}, *_words(told))
    return 0


def _words(told: dict[str, Any]) -> list[str]:
    """Evidence that holds, for people."""
    claims = told["claims"]
    lines = [f"holds at {told['at']} s: {told['policy']}"]
    lines += [f"{name} = {value}" for name, value in claims["measurements"].items()]
    lines += [f"{name} = {value}" for name, value in claims["tcb"].items()]
    return [*lines, f"report data = {claims['report_data']}"]


def _measure(options: argparse.Namespace) -> int:
    if options.build is not None:
        platform, measurement = of_build(options.build)
    else:
        platform = options.platform
        measurement = of_machine(platform, MachineAttester())
    stated = ", ".join(f'{name} = "{value}"' for name, value in measurement.items())
    lines = (f'platform = "{platform}"', f"measurements = [{{ {stated} }}]")
    answer(options, {"platform": platform, "measurements": measurement}, *lines)
    return 0


def _content(path: Path) -> bytes:
    """All of a file of evidence."""
    try:
        return read_bytes(path, most=_MOST)
    except OSError as error:
        raise UserError(f"expected a file at {path}, got: {why_of(error)}") from None


def _collateral(path: Path | None) -> bytes:
    """What goes with it, if there is something; PEM with the line ends that it must have."""
    content = b"" if path is None else _content(path)
    if not content.startswith(b"-----BEGIN "):
        return content
    return content.replace(b"\r\n", b"\n").rstrip(b"\n") + b"\n"


def _policy(path: Path) -> dict[str, Any]:
    """The table in a policy file."""
    try:
        return toml_table(read_text(path, most=_MOST))
    except OSError as error:
        raise UserError(f"expected a policy at {path}, got: {why_of(error)}") from None
    except ValueError as error:
        raise UserError(f"expected a policy in TOML at {path}, got: {str(error)[:200]}") from None


def _from_base64(content: bytes) -> bytes:
    """A Nitro document that is written in base64, in its one spelling; others as they are."""
    try:
        decoded = b64decode(content.strip(), validate=True)
    except Base64Error:
        return content
    return decoded if b64encode(decoded) == content.removesuffix(b"\n") else content


def _report_data(text: str) -> bytes:
    """64 bytes."""
    if not re.fullmatch(r"[0-9a-fA-F]{128}", text):
        raise UserError("expected --report-data of 128 hexadecimal digits, got another; pad it")
    return bytes.fromhex(text)


def _time(text: str) -> int:
    """Seconds since 1970."""
    if not text:
        return clock()
    if text.isascii() and text.isdigit() and len(text) <= 12:
        return int(text)
    try:
        at = datetime.fromisoformat(text)
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        raise UserError(
            f"expected --at as 2026-01-31T12:00 or in seconds since 1970, got {text[:40]!r}"
        ) from None
