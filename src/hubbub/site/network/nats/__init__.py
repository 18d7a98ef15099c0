"""NATS as the engine: envelopes in pieces over a server that can run nothing.

`pieces` is what travels, `message_delivery` what two ends make of it however many pieces are lost,
`relay_connection` a party's one connection, outward, to an `address`, perhaps through a `proxy`, to
each `other_end`; `tls` is what of the server is believed, `server` what it is told, and how it is
kept up, `leaf` what a site's own is told that leads to it. `carrier` is the aggregator's phase over
all of it, `answering` a party's loop. Nothing here knows what is in an envelope.
"""
