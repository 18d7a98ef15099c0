"""A leaf relay: for parties whose machines may not leave their network, the one that may.

It is a NATS server that logs in to the consortium's relay once for each of its parties, with that
party's own transport key, and so may there what the party may and nothing else. It holds no other
key: it can do what the relay can, and is trusted with as little.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hubbub.core.disk import PRIVATE, write_bytes, write_text
from hubbub.core.errors import UserError
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.site.network.nats.address import Relay
from hubbub.site.network.nats.server import (
    CONFIGURATION,
    base_lines,
    member_limits,
    quoted,
    rights,
    tls_lines,
)
from hubbub.site.network.nats.subjects import answers_of, asked_of, nkey_of, seed_of
from hubbub.site.network.nats.tls import RelayCertificate

HUB_CERTIFICATE = "hub.pem"


@dataclass(frozen=True, kw_only=True)
class LeafFiles:
    """What a leaf relay reads, for its own user alone: it has transport keys.

    Args:
        configuration: of the server.
        certificate: that it shows to its parties, with its key.
    """

    configuration: Path
    certificate: RelayCertificate

    @classmethod
    def written(
        cls, folder: Path, parties: Sequence[Keys], here: Relay, hub: Relay, shown: Path
    ) -> LeafFiles:
        """Write them into a folder; a certificate is renewed, and its key stays.

        Args:
            folder: that the leaf will run in.
            parties: of this network; silos or nodes.
            here: its URL, as they reach it.
            hub: the consortium's relay, at the port that it has for leaves.
            shown: that relay's certificate, a PEM file; looked at where the roster names its key.

        Raises:
            UserError: a URL is none that a leaf can have, or the certificate is not the relay's.
            StudyError: a party has no transport key.
        """
        if here.web or hub.web:
            raise UserError("expected tls:// for a leaf relay and its hub, got wss://; name those")
        if hub.pin and RelayCertificate(path=shown, key=shown).pin != hub.pin:
            raise UserError(
                f"expected the relay's certificate in {shown}, of the key that the roster names, "
                "found another; ask the aggregator for relay.pem"
            )
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        trusted = ""
        if hub.pin:
            write_bytes(folder / HUB_CERTIFICATE, shown.read_bytes())
            trusted = f"ca_file: {quoted(folder.resolve() / HUB_CERTIFICATE)}"
        own = RelayCertificate.made(folder, *here.hosts)
        lines = ["# Written by hubbub leaf; has transport keys: for the server's user alone"]
        lines += base_lines(folder.resolve(), here, tls_lines(own))
        lines += ["accounts {", *(_account(keys) for keys in parties), "}"]
        lines += [
            "leafnodes { remotes: [",
            *(_remote(party, hub, trusted) for party in parties),
            "] }",
        ]
        path = folder / CONFIGURATION
        write_text(path, "\n".join(lines) + "\n", mode=PRIVATE)
        return cls(configuration=path, certificate=own)


def _account(keys: Keys) -> str:
    """A party's account, which reaches the account of the same name at the relay."""
    me = keys.identity
    user = f"nkey: {nkey_of(me)}, permissions: {rights([answers_of(me)], [asked_of(me)])}"
    limits = ", ".join(member_limits(me))
    return f"  {json.dumps(me.name)}: {{ users: [{{ {user} }}], limits: {{ {limits} }} }}"


def _remote(keys: Keys, hub: Relay, trusted: str) -> str:
    """How a party is logged in at the relay."""
    name, seed = json.dumps(keys.identity.name), json.dumps(seed_of(keys))
    return (
        f"  {{ urls: {json.dumps(hub.urls)}, account: {name}, nkey: {seed}, tls {{ {trusted} }} }}"
    )
