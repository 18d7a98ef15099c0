"""Everything that Flower needs; docs/howto/flower.md says how to run it."""

from pathlib import Path

from hubbub.flower import client_app, server_app

HOMES = Path.home() / "hospitals"  # each party's folder, made by hubbub keygen
NAMES = ("cleveland", "hungary", "switzerland", "va-long-beach")

server = server_app(HOMES / "study.toml", home=HOMES / "aggregator")
client = client_app(lambda context: HOMES / NAMES[context.node_config["partition-id"]])
