"""The runbooks, played step by step as their page has them (docs/howto/runbooks.md)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from hubbub.core.protocol.primitives.wire import VERSION
from network.lines import free_port, wait
from network.played import Played, Runbook

pytest.importorskip("nats", reason="needs the extra net")
SILOS = ("cleveland", "hungary", "va-long-beach")
WIRES = f"wire version {VERSION}, got {VERSION + 1}"
STEPS = 60
JOIN, SERVE = "hubbub join --home HOME", "hubbub serve STUDY --home HOME"


def rows(head: str) -> str:
    """What `hubbub ledger head` says but for the time."""
    return head.split("time", maxsplit=1)[0]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[..., Played]]:
    """Consortiums whose processes end with the test."""
    played: list[Played] = []

    def begin(**changes: Any) -> Played:
        (tmp_path / "all").mkdir()
        played.append(Played(tmp_path / "all", SILOS, **changes))
        return played[-1]

    yield begin
    for one in played:
        one.end()


def renewed(book: Runbook, our: Played) -> list[str]:
    """Steps 2 to 4 of a rotation, which a replacement has too; what each was told as it agreed."""
    our.type(book.take("hubbub roster"))
    our.write_study()
    approve = book.take("hubbub approve")
    said = [our.type(approve, name) for name in our.parties]
    assert all("approved: a consortium" in words for words in said)
    our.type(book.take("hubbub relay"), RELAY="aggregator/relay")
    return said


def done(our: Played, *homes: str) -> str:
    """Play the study to its end with who is there and who comes; its id."""
    for name in homes:
        our.start(JOIN, name)
    our.serve(SERVE)
    our.served()
    return our.study.id.hex()


@pytest.mark.slow
def test_a_key_is_rotated_in_the_middle_of_a_training(play: Callable[..., Played]) -> None:
    """The training starts over, which everybody is told before, and what was spent stays spent."""
    book, our = Runbook("Rotate a key"), play(training={"steps": 400})
    former = our.study.id.hex()
    for name in our.silos:
        our.start(JOIN, name)
    our.serve(SERVE)
    our.reach(2)
    our.stop("cleveland")
    our.type(book.take("mkdir OLD"), "cleveland", OLD="old")
    our.type(book.take("hubbub keygen cleveland"), "cleveland")
    our.table["training"]["steps"] = 3
    assert all("a training starts again at step 0" in said for said in renewed(book, our))
    our.served(rc=2)
    spent = our.spent("cleveland")["studies"]
    assert [*spent] == [former]
    our.start(book.take("hubbub join"), "cleveland")
    our.serve(book.take("hubbub serve"))
    our.served()
    assert our.spent("cleveland")["studies"] == {**spent, our.study.id.hex(): 3}
    our.type(book.take("shred"), "cleveland", OLD="old")
    assert not (our.folder / "old" / "keys.toml").exists()
    assert book.is_over


@pytest.mark.slow
def test_a_site_is_replaced_and_the_new_one_moves(play: Callable[..., Played]) -> None:
    rotate, book, our = Runbook("Rotate a key"), Runbook("Add, replace or remove a site"), play()
    shutil.copy(our.folder / "study.toml", our.folder / "former.toml")
    former = done(our, *SILOS)
    our.silos[0] = "switzerland"
    our.type("hubbub keygen switzerland --home HOME", "switzerland")
    for command in ("mkdir", "hubbub keygen"):  # nobody's keys are rotated
        rotate.take(command)
    renewed(rotate, our)
    our.type(book.take("hubbub approve"), "cleveland", STUDY="former.toml")
    assert not list((our.folder / "cleveland" / "approved").glob("*.toml"))
    our.serve(SERVE)
    our.type("mv HOME moved", "switzerland")
    our.type(book.take("hubbub join --check"), "moved")
    port = free_port()
    our.start(f"{JOIN} --metrics-port {port}", "moved")
    our.served()
    assert our.spent("moved")["studies"] == {our.study.id.hex(): 3}
    assert our.spent("hungary")["studies"] == {former: 3, our.study.id.hex(): 3}
    assert our.spent("cleveland")["studies"] == {former: 3}  # it keeps its ledger
    with urlopen(f"http://127.0.0.1:{port}/", timeout=60) as page:
        assert "<bdi>3 of 3</bdi>" in page.read().decode()
    assert book.is_over


@pytest.mark.slow
def test_a_site_is_restored_from_a_current_copy_and_from_an_older_one(
    play: Callable[..., Played],
) -> None:
    """An aggregator witnesses a ledger as a session begins: so the run here has two of them."""
    book, rotate = Runbook("Back up and restore"), Runbook("Rotate a key")
    our = play(training={"steps": 12})
    home, ledger = our.folder / "cleveland", "cleveland/ledger.sqlite"
    our.type(f"hubbub budget set {ledger} --epsilon 9 --delta 1e-5 --new")
    our.type(book.take("cp -a HOME"), "cleveland", BACKUP="backup")
    noted = rows(our.type(book.take("hubbub ledger head"), "cleveland"))

    shutil.rmtree(home)
    our.type(book.take("cp -a BACKUP"), "cleveland", BACKUP="backup")
    assert rows(our.type(book.take("hubbub ledger head"), "cleveland")) == noted
    our.serve(SERVE)
    our.type(book.take("hubbub join --check"), "cleveland")
    for name in our.silos:
        our.start(JOIN, name)
    our.reach(1)
    our.stop("aggregator")
    our.serve(SERVE)
    our.served()
    spent = our.spent("cleveland")
    assert spent["studies"] == {our.study.id.hex(): 12}

    our.stop("cleveland")
    shutil.rmtree(home)
    shutil.copytree(our.folder / "backup", home)
    run = str(our.run)
    our.type(book.take("hubbub verify"), RUN=run)
    said = our.type(book.take("hubbub ledger missing"), "cleveland", rc=1, RUN=run)
    # An aggregator that was told to end while silos answered has heard one answer less.
    assert re.search("training: 1[12] rows missing", said)
    before, truly = map(
        float, re.findall(r"epsilon ([\d.]+) according to .*, ([\d.]+) with", said)[0]
    )
    assert truly >= spent["epsilon"] * (1 - 1e-3)
    assert before < truly
    left = {"EPSILON": f"{9 - (truly - before):g}", "DELTA": "1e-5"}
    our.type(book.take("hubbub budget set"), "cleveland", **left)
    our.type(rotate.take("mkdir"), "cleveland", OLD="old")
    our.type(rotate.take("hubbub keygen"), "cleveland")
    renewed(rotate, our)
    our.start(JOIN, "cleveland")
    our.serve(SERVE)
    our.served(rc=1)
    assert our.events("aggregator", "older")[-1]["whom"] == "cleveland"
    our.type(book.take("mkdir OLD && mv HOME/witness"), "aggregator", OLD="heads")
    done(our)
    assert our.spent("cleveland")["studies"] == {our.study.id.hex(): 12}
    assert book.is_over


@pytest.mark.slow
def test_parties_are_upgraded_in_the_middle_of_a_training(play: Callable[..., Played]) -> None:
    """To the same wire one after the other; to another wire, all of them, while the run waits."""
    book, our = Runbook("Upgrade"), play(training={"steps": STEPS})
    check = book.take("hubbub join --check")
    for name in our.silos:
        our.start(JOIN, name)
    our.serve(SERVE)
    newer = our.program("newer", "import hubbub; hubbub.VERSION = '9.9'")
    for name in our.silos:
        our.reach(our.status("aggregator").get("step", 0) + 2)
        our.stop(name)
        our.programs[name] = newer
        assert f"wire {VERSION}" in our.type(check, name)
        our.start(JOIN, name)
    our.reach(our.status("aggregator")["step"] + 2)
    assert {event["whom"] for event in our.events("aggregator", "version")} == {*our.silos}

    program = f"import hubbub.core.protocol.primitives.wire as wire; wire.VERSION = {VERSION + 1}"
    other = our.program("other-wire", program)
    step = our.status("aggregator")["step"]
    our.stop("hungary")
    our.programs["hungary"] = other
    assert f"wire {VERSION + 1}" in our.type(check, "hungary", rc=None)
    our.start(JOIN, "hungary")
    wait(lambda: WIRES in str(our.events("aggregator", "version")))
    for name in ("hungary", "aggregator"):
        our.stop(name)
    our.programs["aggregator"] = other
    our.start(SERVE, "aggregator")
    our.served(rc=1)  # the transcript was begun with the former wire
    del our.programs["hungary"], our.programs["aggregator"]
    our.start(JOIN, "hungary")
    our.serve(SERVE)
    our.served()
    assert our.events("aggregator", "resumed")[-1]["step"] >= step
    assert our.status("aggregator")["attempts"] == STEPS  # a restart may cost an attempt
    assert book.is_over
