"""NATS as the engine: envelopes in pieces over a server that can run nothing.

`message_delivery` is what two ends make of a message however many of its pieces are lost,
`relay_connection` a party's one connection, outward, by one of the `transports`; `relay` is what of
the server is believed, `server` what it is told, and how it is kept up. `carrier` is the
aggregator's phase over all of it. Nothing here knows what is in an envelope.
"""
