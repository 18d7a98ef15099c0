"""How each command is typed, once: the line with which its help ends."""

from __future__ import annotations

_KEYS = "--delta 1e-5 --steps 60 --sample-rate 0.2"
EXAMPLES = {
    "hubbub": "hubbub init north.csv south.csv west.csv --target died",
    "hubbub init": "hubbub init north.csv south.csv west.csv --target died",
    "hubbub check": "hubbub check study.toml --silo north --data /srv/records",
    "hubbub schema": "hubbub schema --out study.schema.json",
    "hubbub demo": "hubbub demo --out runs/demo",
    "hubbub plan": "hubbub plan study.toml",
    "hubbub run": "hubbub run study.toml --out runs/first",
    "hubbub compare": "hubbub compare study.toml --repeats 5",
    "hubbub rehearse": "hubbub rehearse study.toml --repeats 5",
    "hubbub predict": "hubbub predict runs/first new.csv --out scores.csv",
    "hubbub export": "hubbub export runs/first --onnx model.onnx",
    "hubbub keygen": "hubbub keygen north --home hubbub-home",
    "hubbub roster": "hubbub roster aggregator.id north.id south.id --out roster.toml",
    "hubbub relay": "hubbub relay roster.toml --out relay",
    "hubbub leaf": "hubbub leaf roster.toml --relay tls://leaf.internal "
    "--hub tls://hub.example.org:7422 --out hubbub-leaf",
    "hubbub approve": "hubbub approve study.toml --roster roster.toml",
    "hubbub serve": "hubbub serve study.toml --home hubbub-home",
    "hubbub join": "hubbub join --check --data /srv/records",
    "hubbub status": "hubbub status hubbub-home",
    "hubbub verify": "hubbub verify runs/first",
    "hubbub report": "hubbub report runs/first",
    "hubbub table": "hubbub table runs/first --format html,docx --figures pdf",
    "hubbub dossier": "hubbub dossier runs/first --fill written.toml",
    "hubbub audit": "hubbub audit study.toml --runs 5 --out audit.json",
    "hubbub attest": "hubbub attest measure",
    "hubbub attest quote": "hubbub attest quote --platform snp --report-data HEX --out report.bin",
    "hubbub attest verify": "hubbub attest verify report.bin --policy policy.toml --collateral "
    "chain.pem",
    "hubbub attest measure": "hubbub attest measure --platform tdx",
    "hubbub epsilon": f"hubbub epsilon --noise-multiplier 4 {_KEYS}",
    "hubbub delta": "hubbub delta --noise-multiplier 4 --epsilon 1 --steps 60 --sample-rate 0.2",
    "hubbub noise": f"hubbub noise --epsilon 1 {_KEYS}",
    "hubbub ledger": "hubbub ledger show ledgers/north.sqlite",
    "hubbub ledger show": "hubbub ledger show ledgers/north.sqlite",
    "hubbub ledger verify": "hubbub ledger verify ledgers/north.sqlite",
    "hubbub ledger export": "hubbub ledger export ledgers/north.sqlite",
    "hubbub ledger head": "hubbub ledger head ledgers/north.sqlite --json",
    "hubbub ledger witness": "hubbub ledger witness statement.json --key south.key",
    "hubbub budget": "hubbub budget set ledgers/north.sqlite --epsilon 3 --delta 1e-5",
    "hubbub budget set": "hubbub budget set ledgers/north.sqlite --epsilon 3 --delta 1e-5 --new",
    "hubbub bench": "hubbub bench --json",
}
