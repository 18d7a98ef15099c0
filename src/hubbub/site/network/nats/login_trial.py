"""Whether the servers of a relay would take a party, found out by logging in and leaving.

Nothing is subscribed to and nothing published: a process of the same party that takes part is not
disturbed, and nobody else hears of it.
"""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from cryptography import x509

from hubbub.core.protocol.primitives.identity import Keys
from hubbub.site.network.nats.address import Relay
from hubbub.site.network.nats.relay_connection import RelayConnection
from hubbub.site.network.nats.subjects import seed_of
from hubbub.site.network.nats.tls import pin_of

_SECONDS = 7.0  # with the time to end, ten


@dataclass(frozen=True, kw_only=True)
class ShownCertificate:
    """What a server has shown of itself.

    Args:
        begins, ends: its dates.
        pin: SHA-256 of its public key.
    """

    begins: datetime
    ends: datetime
    pin: bytes = field(repr=False)

    @classmethod
    def read(cls, data: bytes) -> ShownCertificate | None:
        """The certificate in DER; None if it is none."""
        try:
            certificate = x509.load_der_x509_certificate(data)
        except ValueError:
            return None
        return cls(
            begins=certificate.not_valid_before_utc,
            ends=certificate.not_valid_after_utc,
            pin=pin_of(certificate),
        )


@dataclass(frozen=True, kw_only=True)
class LoginTrial:
    """What came of a log-in.

    Args:
        url: of the server.
        why: it failed; empty if it did not.
        certificate: that the server has shown, believed or not; None if it came to none.
    """

    url: str
    why: str
    certificate: ShownCertificate | None


def tried(relay: Relay, keys: Keys) -> list[LoginTrial]:
    """Log in to each server with a party's transport key, and leave, within ten seconds.

    Raises:
        StudyError: the party has no transport key.
    """
    with ThreadPoolExecutor(len(relay.urls)) as pool:
        servers = [replace(relay, urls=(url,)) for url in relay.urls]
        return list(pool.map(partial(logged_in, seed=seed_of(keys)), servers))


def logged_in(relay: Relay, seed: str) -> LoginTrial:
    """Log in to a relay's one server with a key, as NATS writes it, and leave."""
    (url,) = relay.urls
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    line = RelayConnection(
        relay,
        seed,
        {},
        replies=False,
        arrived=lambda *_: None,
        told=lambda _, why: said.put(why),
    )
    line.start()
    try:
        why = said.get(timeout=_SECONDS)
    except queue.Empty:
        why = f"no answer from {url} within {_SECONDS:g} s"
    finally:
        line.stop()
    return LoginTrial(url=url, why=why, certificate=ShownCertificate.read(line.certificate))
