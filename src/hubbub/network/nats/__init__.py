"""NATS as the engine: envelopes in pieces over a server that can run nothing.

`pieces` is what travels, `link` what two ends make of it however many pieces are lost, `line` a
party's one connection, outward, `certificate` what of the server is believed, `server` what it is
told, and how it is kept up. `carrier` is the aggregator's phase over all of it. Nothing here knows
what is in an envelope.
"""

from hubbub.network.nats.carrier import Carrier
from hubbub.network.nats.certificate import Certificate
from hubbub.network.nats.line import Line, Relay
from hubbub.network.nats.server import Server, write_server

__all__ = ["Carrier", "Certificate", "Line", "Relay", "Server", "write_server"]
