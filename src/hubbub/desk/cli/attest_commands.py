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
    PlatformEvidence,
    check_claims,
    in_words,
    made_near,
    policy_of,
    report_data_is,
)
from hubbub.core.verification.attestation.study_attestation import clock
from hubbub.desk.cli.terminal import add_command, add_family, answer, argument, writing
from hubbub.site.attestation.devices import MachineAttester, of_build, of_machine

_MOST = 1 << 18  # bytes of a file


def add_commands(commands: Any) -> None:
    """Register the commands."""
    words = "evidence that a machine is attested: make it, verify it, or find out what to pin"
    parts = add_family(commands, "attest", words, "WHAT")
    has = "the platform of this machine"
    bound = "64 bytes in hexadecimal digits that the evidence is bound to"
    add_command(
        parts,
        "quote",
        "make evidence on this machine, over 64 bytes",
        _quote,
        argument("--platform", has, choices=sorted(PLATFORMS), required=True),
        argument("--report-data HEX", bound, required=True),
        argument("--out FILE", "the quote", Path, required=True),
    )
    add_command(
        parts,
        "verify",
        "verify evidence against a policy: exit code 0 if it satisfies the policy, 1 if not",
        _verify,
        argument("file", "a quote, a report or a document", Path),
        argument("--policy", "TOML with the keys of [attestation.silo]", Path, required=True),
        argument("--collateral FILE", "what the vendor publishes", Path),
        argument(
            "--at TIME",
            "time of verification, as 2026-01-31T12:00 (UTC) or in seconds since 1970; default: "
            "now",
            default="",
        ),
        argument("--report-data HEX", bound, default=""),
        argument(
            "--max-age SECONDS",
            "the oldest that a dated document may be at the time of verification; default: any age",
            int,
        ),
    )
    add_command(
        parts,
        "measure",
        "what to pin for a build, or for this machine",
        _measure,
        argument("--platform", has, choices=sorted(PLATFORMS), default="software"),
        argument("--build FILE", "Gramine's .sig, or JSON of nitro-cli", Path),
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
    rules = policy_of(role)
    if options.max_age is not None:
        rules.append(made_near(at, options.max_age))
    if options.report_data:
        rules.append(report_data_is(_report_data(options.report_data)))
    quote = _content(options.file)
    collateral = b"" if options.collateral is None else _content(options.collateral)
    if collateral.startswith(b"-----BEGIN "):  # PEM has the line ends that it must have
        collateral = collateral.replace(b"\r\n", b"\n").rstrip(b"\n") + b"\n"
    evidence = PlatformEvidence(
        platform=role.platform,
        quote=_from_base64(quote) if role.platform == "nitro" else quote,
        collateral=collateral,
    )
    told: dict[str, Any] = {"at": at, "policy": in_words(rules)}
    try:
        claims = evidence.verified(at)
        if options.max_age is not None and claims.made is None:  # no rule can look at it
            raise UserError(
                f"expected evidence with a date for --max-age, got that of {role.platform}, which "
                "has none; leave the option out"
            )
        told["claims"] = claims.to_dict()
        check_claims(claims, rules)
    except AttestationError as error:
        told |= {"holds": False, "rule": error.rule, "why": str(error)}
        answer(options, told, f"refused by the rule “{error.rule}”: {error}")
        return 1
    plain = told["claims"]
    named = [*plain["measurements"].items(), *plain["tcb"].items()]
    answer(
        options,
        {**told, "holds": True, "rule": None, "why": None},
        f"satisfies the policy at {told['at']} s: {told['policy']}",
        *(f"{name} = {value}" for name, value in named),
        f"report data = {plain['report_data']}",
    )
    return 0


def _measure(options: argparse.Namespace) -> int:
    platform = options.platform
    if options.build is not None:
        platform, measurement = of_build(options.build)
    else:
        measurement = of_machine(platform, MachineAttester())
    stated = ", ".join(f'{name} = "{value}"' for name, value in measurement.items())
    lines = (f'platform = "{platform}"', f"measurements = [{{ {stated} }}]")
    answer(options, {"platform": platform, "measurements": measurement}, *lines)
    return 0


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path, most=_MOST)
    except OSError as error:
        raise UserError(f"expected a readable file at {path}, got: {why_of(error)}") from None


def _policy(path: Path) -> dict[str, Any]:
    try:
        return toml_table(read_text(path, most=_MOST))
    except OSError as error:
        raise UserError(f"expected a readable policy at {path}, got: {why_of(error)}") from None
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
    if not re.fullmatch(r"[0-9a-fA-F]{128}", text):
        raise UserError("expected --report-data of 128 hexadecimal digits, got another; pad it")
    return bytes.fromhex(text)


def _time(text: str) -> int:
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
