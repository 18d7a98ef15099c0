"""Finished runs as a dishonest aggregator may change them: nothing false is told as computed again.

It holds its own key: it cuts, doubles and signs its frames anew, renumbers, renames and mixes
transcripts, shows other sums and models, and signs evidence of whatever comes of it. What verifying
then calls re-derived of the files that people are given must be what the honest run gave.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.learning.validation.made_up import table_of, write_silos

from hubbub.core.errors import HubbubError, IntegrityError
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.query import QueryState, SteppedQuery
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.wire import Frame, Tag, unverified
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.claims import check
from hubbub.core.verification.evidence.evidence_file import (
    NOT_VERIFIABLE,
    REDERIVED,
    SIGNED,
    Finding,
    with_signature,
)
from hubbub.core.verification.replay.checking import verify
from hubbub.core.verification.transcript.frame_records import Kept, files, read, read_header
from hubbub.desk.report.report_of_run import paper_of, write_report
from hubbub.estimation.queries.sums_query import SumsQuery, sums_in, write_sums
from hubbub.learning.queries.validation.validation_query import ValidationQuery
from run.mutations import content_of
from run.test_taken_states import COLUMNS, Forger, forged

GIVEN = (
    *("model.safetensors", "standardisation.json"),
    *("validation.json", "validation-sums.json", "coefficients.json", "coefficient-sums.json"),
    *("statistics.json", "sums.json", "synthetic.json", "synthetic.csv", "synthetic-sums.json"),
)
PURPOSES = ("training", "validation", "coefficients", "statistics", "evaluation")


def asking(silos: Path, *parts: str, **changed: Any) -> dict[str, Any]:
    """A study with only these of its parts besides a training, if it has one."""
    made = table_of(
        silos,
        data={"columns": COLUMNS, "records": 480},
        training={"steps": 3},
        privacy={"epsilon": 24.0},
        validation={"records": "training", "sums": 2},
        coefficients={"epsilon": 16.0, "sums": 2},
    )
    del made["validation"]["holdout"]
    trains = {"model", "training"} if "training" in parts else set()
    kept = {"study", "parties", "data", "privacy", *parts, *trains}
    made = {name: keys for name, keys in made.items() if name in kept}
    if not trains:
        del made["data"]["target"]
    return made | {name: made.get(name, {}) | keys for name, keys in changed.items()}


def studies(silos: Path) -> dict[str, dict[str, Any]]:
    """Of all kinds whose runs take seconds."""
    asked = ("training", "validation", "coefficients")
    odds = {"kind": "logistic", "outcome": "sex", "covariates": {"age": [60]}}
    ages = {"kind": "table", "columns": ["age"]}
    poisson = {"steps": 4, "sampling": "poisson", "sample_rate": 0.3, "noise": "correlated"}
    epochs = {**poisson, "steps": 8, "sample_rate": 0.25, "bands": 4}
    looks = {"steps": 4, "evaluate": {"every": 2, "epsilon": 0.5}}
    standardise = {"standardise": {"epsilon": 1.0, "bound": 2.0}}
    return {
        "scored": asking(silos, *asked),
        "by nodes": asking(silos, *asked, parties={"compute_nodes": 2}),
        "hashes": asking(silos, *asked, study={"transcript": "hashes"}),
        "evaluated": asking(silos, "training", training=looks),
        "correlated": asking(silos, "training", "validation", training=poisson),
        "in epochs": asking(silos, "training", "coefficients", training=epochs),
        "standardised": asking(silos, "training", "validation", data=standardise),
        "newton": asking(silos, statistics={"odds": odds}),
        "tables": asking(silos, statistics={"ages": ages, "sums": 3}),
        "synthetic": asking(silos, synthetic={"columns": ["age", "sex"]}),
    }


# Frames ----------------------------------------------------------------------------------------


def signed(kept: Kept, keys: Keys, **changes: Any) -> Kept:
    """A frame of the aggregator with changes."""
    names = ("tag", "study", "session", "round", "attempt", "sender", "receiver")
    said = {name: getattr(kept, name) for name in names} | {"payload": bytes(kept.payload or b"")}
    made = Frame(**said | changes).sealed(keys)
    words, signature, short = made[: len(kept.words)], made[-64:], unverified(made).short
    return replace(kept, **changes, short=short, signature=signature, words=words)


def cut(kept: list[Kept], _: Keys, chance: random.Random) -> list[Kept]:
    return kept[: chance.randrange(len(kept))]


def dropped(kept: list[Kept], _: Keys, chance: random.Random) -> list[Kept]:
    begin = chance.randrange(len(kept))
    return kept[:begin] + kept[begin + chance.randrange(1, 8) :]


def without_a_round(kept: list[Kept], _: Keys, chance: random.Random) -> list[Kept]:
    lost = chance.choice([one.round for one in kept])
    return [one for one in kept if one.round != lost or not lost]


def doubled(kept: list[Kept], _: Keys, chance: random.Random) -> list[Kept]:
    begin = chance.randrange(len(kept))
    return kept[: begin + 1] + kept[begin:]


def swapped(kept: list[Kept], _: Keys, chance: random.Random) -> list[Kept]:
    one, two = (chance.randrange(len(kept)) for _ in range(2))
    kept[one], kept[two] = kept[two], kept[one]
    return kept


def renumbered(kept: list[Kept], keys: Keys, chance: random.Random) -> list[Kept]:
    by = chance.choice((-1, 1))
    return [
        signed(one, keys, round=max(0, one.round + by)) if one.round and not one.sender else one
        for one in kept
    ]


def another_model(kept: list[Kept], keys: Keys, chance: random.Random) -> list[Kept]:
    """One number of a MODEL, or its count of sums, and the last of them."""
    place = chance.choice([k for k, one in enumerate(kept) if one.tag is Tag.MODEL])
    payload = bytes(kept[place].payload or b"")
    first = len(payload) % 4 or 4
    numbers = np.frombuffer(payload[first:], "<f4").copy()
    if chance.random() < 0.5:
        spot = chance.randrange(len(numbers))
        numbers[spot] = chance.choice((2 * numbers[spot], numbers[spot] + 1e-3, 0.0, np.nan, 1e30))
    else:
        numbers[0], numbers[-1] = chance.choice((0, 1, 2, 5, 0.5, np.nan)), chance.choice((0, 1e3))
    kept[place] = signed(kept[place], keys, payload=payload[:first] + numbers.tobytes())
    return kept


def another_roll(kept: list[Kept], keys: Keys, chance: random.Random) -> list[Kept]:
    place = next(k for k, one in enumerate(kept) if one.tag is Tag.ROLL)
    bits = bytes([(kept[place].payload or b"\0")[0] & chance.choice((0xE0, 0xD0, 0x70, 0xF0))])
    kept[place] = signed(kept[place], keys, payload=bits)
    return kept


CHANGES: tuple[Callable[[list[Kept], Keys, random.Random], list[Kept]], ...] = (
    *(cut, cut, dropped, without_a_round, without_a_round, doubled, swapped),
    *(renumbered, another_model, another_model, another_roll),
)


def change_transcript(forger: Forger, path: Path, chance: random.Random) -> str:
    """One transcript of a run."""
    header, what = read_header(path), chance.random()
    said = {"purpose": header.purpose, "number": header.number}
    if what < 0.08:
        path.unlink()
        return f"no {header.purpose}"
    if what < 0.2:
        said["number"] = chance.choice((0, 1, 5))
        forger.rewrite_file(path, lambda kept: kept, **said)
    elif what < 0.26:
        said["purpose"] = chance.choice(PURPOSES)
        forger.rewrite_file(path, lambda kept: kept, **said)
    elif what < 0.34:
        forger.rewrite_file(path, lambda kept: kept, full=False, **said)
        return f"hashes {said}"
    else:
        change = chance.choice(CHANGES)
        with suppress(StopIteration, IndexError, ValueError):  # it has no such frame
            made = change(list(read(path)), forger.keys, chance)
            forger.rewrite_file(path, lambda _: made, **said)
        return f"{change.__name__} {header.purpose}"
    return f"{said}"


# What is given ---------------------------------------------------------------------------------


def give(folder: Path, query: SteppedQuery, plan: Plan, state: QueryState) -> None:
    """The files that follow from these sums."""
    for name, text in query.released(plan, state).files.items():
        (folder / name).write_text(text)


def change_sums(folder: Path, forger: Forger, chance: random.Random) -> Iterator[str]:
    """Other sums, with the answers that follow from them."""
    plan = forger.result.plan
    for query in (planned.query for planned in plan.stepped):
        if chance.random() < 0.5:
            continue
        if isinstance(query, SumsQuery) and (folder / query.kept_in).exists():
            kept, layout = sums_in(folder, query.layout, query.kept_in).copy(), query.layout
            made, begin = layout.made(kept), kept.size - layout.rounds * layout.numbers
            rows = kept[begin:].reshape(-1, layout.numbers)
            how = chance.choice(("fewer", "larger", "counted", "turned"))
            if how == "fewer":
                kept[0], rows[max(0, made - 1)] = max(0, made - 1), 0
            elif how == "larger":
                rows[: max(1, made)] *= 1.5
            elif how == "counted":
                kept[0] = chance.choice((0, 1, made + 1))
            else:
                rows[:made] = rows[:made][::-1].copy()
            with suppress(HubbubError, ValueError, ArithmeticError, RuntimeWarning):
                write_sums(folder, kept, query.kept_in)
                give(folder, query, plan, QueryState(parameters=kept))
            yield f"{query.kept_in} {how}"
        elif isinstance(query, ValidationQuery) and (folder / "validation-sums.json").exists():
            sums = json.loads((folder / "validation-sums.json").read_text())["sums"]
            sums = chance.choice((sums[:-1], sums[::-1], [[2 * x for x in sums[0]], *sums[1:]]))
            (folder / "validation-sums.json").write_text(json.dumps({"sums": sums}))
            state = QueryState(
                parameters=np.zeros(0, np.float32),
                optimizer={"sums": np.array(sums).reshape(-1, query.layout.size)},
            )
            give(folder, query, plan, state)
            yield "validation"


def change_model(forger: Forger, chance: random.Random) -> Iterator[str]:
    """An earlier state of the training, or any other numbers."""
    if not (forger.folder / "model.safetensors").exists() or chance.random() < 0.6:
        return
    mine = [one for one in files(forger.folder) if read_header(one).purpose == "training"]
    states = [k.payload for one in mine for k in read(one) if k.tag is Tag.MODEL and k.payload]
    states = [bytes(one)[-4 * 3 :] for one in states] or [np.ones(3, "<f4").tobytes()]
    forger.release(np.frombuffer(chance.choice(states), "<f4"))
    yield "model"


def change_shifts(folder: Path, chance: random.Random) -> Iterator[str]:
    path = folder / "standardisation.json"
    if path.exists() and chance.random() < 0.3:
        said = json.loads(path.read_text())
        said["shift"][0] += 0.1
        path.write_text(json.dumps(said))
        yield "shifts"


def content(path: Path) -> Any:
    """What a file says, however it is written."""
    if not path.exists():
        return None
    if path.suffix == ".safetensors":
        return {name: one.tolist() for name, one in load_file(path).items()}
    return json.loads(path.read_text()) if path.suffix == ".json" else path.read_text()


# -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Forger]:
    """An honest run of each kind of study, made once."""
    home, made = tmp_path_factory.mktemp("mutated"), dict[str, Forger]()
    write_silos(home / "silos", 120)

    def of(kind: str) -> Forger:
        if kind not in made:
            study = Study.from_table(studies(home / "silos")[kind])
            (home / kind).mkdir()
            made[kind] = forged(study, home / kind)
            assert all(one.holds for one in made[kind].sign())
        return made[kind]

    return of


@pytest.mark.quick_cases("newton-6", "tables-6")
@pytest.mark.parametrize(
    ("kind", "mutations"),
    [("newton", 6), ("tables", 6), *((kind, 80) for kind in studies(Path()))],
)
def test_nothing_that_a_mutation_has_made_false_is_told_as_computed_again(
    runs: Callable[[str], Forger], tmp_path: Path, kind: str, mutations: int
) -> None:
    true, chance = runs(kind), random.Random(f"{kind} {mutations}")
    for number in range(mutations):
        folder = tmp_path / f"{number}" / "run"
        shutil.copytree(true.folder, folder)
        forger, done = Forger(folder, true.keys, true.result), list[str]()
        for _ in range(chance.choice((0, 1, 1, 2, 3))):
            if paths := files(folder):
                done.append(change_transcript(forger, chance.choice(paths), chance))
        done += change_sums(folder, true, chance)
        done += [*change_model(forger, chance), *change_shifts(folder, chance)]
        found = forger.sign(words=chance.random() < 0.8)
        # Who throws an answer away has one sum less, as if a silo had dropped out: that is said.
        proven = [
            one.claim
            for one in found
            if one.verdict == REDERIVED and "attempts gave" not in one.claim
        ]
        for name in GIVEN:
            if any(f"/run/{name} " in one for one in proven):
                assert content(folder / name) == content(true.folder / name), (done, name)
        shutil.rmtree(folder.parent)


# What lies beside -------------------------------------------------------------------------------


def copied(true: Forger, folder: Path) -> Forger:
    shutil.copytree(true.folder, folder)
    return Forger(folder, true.keys, true.result)


def wrongs(found: list[Finding]) -> list[str]:
    return [Path(one.claim.split(" ")[0]).name for one in found if not one.holds]


def test_a_table_for_spreadsheets_says_what_the_sums_say(
    runs: Callable[[str], Forger], tmp_path: Path
) -> None:
    forger = copied(runs("tables"), tmp_path / "run")
    table = forger.folder / "tables" / "ages.csv"
    proven = [one.claim for one in forger.sign() if one.verdict == REDERIVED]
    assert any("ages.csv says what the sums say" in claim for claim in proven)
    text = table.read_text()
    number = re.search(r"(?<=,)\d\d\.\d+(?=,)", text)
    assert number is not None
    for factor, lies in ((1 + 1e-9, []), (1.001, ["ages.csv"]), (-1.0, ["ages.csv"])):
        said = f"{float(number[0]) * factor!r}"
        table.write_text(text[: number.start()] + said + text[number.end() :])
        assert wrongs(verify(forger.folder)) == ["ages.csv"]  # it has another digest
        assert wrongs(forger.sign()) == lies
    table.write_text(text)
    table.with_name("others.csv").write_text(text)
    untold = "what tables/others.csv say, which nothing here computes"
    assert untold in [one.claim for one in forger.sign() if one.verdict == NOT_VERIFIABLE]


def test_what_is_changed_in_a_file_is_wrong_or_the_file_is_told_as_not_computed(
    runs: Callable[[str], Forger], tmp_path: Path
) -> None:
    """Every file of which the evidence has a digest, so that none is believed for its digest."""
    forger, computed = copied(runs("tables"), tmp_path / "run"), []
    forger.sign()
    for name in content_of(forger.folder)["files"]:
        path = forger.folder / name
        text = path.read_text()
        number = max(re.finditer(r"\b[1-9]\d*\b", text), key=lambda one: len(one[0]))
        other = ("2" if {*number[0]} == {"1"} else "1") * len(number[0])  # a folder may be 1111
        path.write_text(f"{text[: number.start()]}{other}{text[number.end() :]}")
        found = forger.sign()
        told = {name for one in found if one.verdict == NOT_VERIFIABLE for name in one.files}
        told |= {name for one in found if name in one.claim and "nothing here" in one.claim}
        assert not all(one.holds for one in found) or name in told, name
        computed += [] if name in told else [name]
        path.write_text(text)
    assert {"statistics.json", "sums.json", "tables/ages.csv", "plan.json"} <= {*computed}


@pytest.mark.parametrize(
    "name", ["coefficients.json", "validation.json", "standardisation.json", "model.safetensors"]
)
def test_a_file_of_what_nobody_has_asked_is_no_answer(
    runs: Callable[[str], Forger], tmp_path: Path, name: str
) -> None:
    forger = copied(runs("tables"), tmp_path / "run")
    (forger.folder / name).write_text("{}")
    assert wrongs(forger.sign()) == [name]


def test_answers_that_a_run_lacks_are_missed(runs: Callable[[str], Forger], tmp_path: Path) -> None:
    forger = copied(runs("tables"), tmp_path / "run")
    (forger.folder / "statistics.json").unlink()
    said = [one.claim for one in forger.sign() if one.verdict == NOT_VERIFIABLE]
    assert "what the sums say: there is no statistics.json" in said
    assert any("what sums.json, tables/ages.csv say" in one for one in said)


def test_what_the_evidence_has_no_digest_of_is_not_verifiable(
    runs: Callable[[str], Forger], tmp_path: Path
) -> None:
    forger = copied(runs("tables"), tmp_path / "run")
    (forger.folder / "comparison.json").write_text("{}")
    (said,) = (one for one in verify(forger.folder) if "has no digest of them" in one.claim)
    assert (said.verdict, "say: comparison.json, report.html; " in said.claim) == (
        NOT_VERIFIABLE,
        True,
    )


@pytest.mark.parametrize("changed", [{}, {"session": "00" * 16}, {"file": "x"}])
def test_no_transcript_stands_for_a_session_that_was_dropped(
    runs: Callable[[str], Forger], tmp_path: Path, changed: dict[str, Any]
) -> None:
    """Silos name their sessions, and those that have no transcript are found by that."""
    true = runs("tables")
    told = content_of(true.folder)
    told["transcripts"].insert(0, told["transcripts"][0] | {"frames": 0} | changed)
    path = tmp_path / "evidence.json"
    path.write_text(with_signature(told, true.keys.sign))
    assert {one.claim for one in check(path) if not one.holds} == {"each transcript is listed once"}


def test_words_that_nobody_has_signed_vouch_for_no_total(
    runs: Callable[[str], Forger], tmp_path: Path
) -> None:
    """As many words as there are silos, all of one of them or under a false signature."""
    forger = copied(runs("tables"), tmp_path / "run")
    true, total = content_of(forger.folder), "states the epsilon that the silos signed"
    assert [one.verdict for one in verify(forger.folder) if total in one.claim] == [SIGNED]
    first, *others = true["silos"]
    for parts in ([first, *[first] * len(others)], [first | {"ledger": 0}, *others]):
        text = with_signature(true | {"silos": parts}, forger.keys.sign)
        (forger.folder / "evidence.json").write_text(text)
        found = verify(forger.folder)
        assert not all(one.holds for one in found)
        assert not any(total in one.claim for one in found)


def test_a_session_by_another_name_is_missing(
    runs: Callable[[str], Forger], tmp_path: Path
) -> None:
    """Nothing of it would be looked at, and nothing be wrong."""
    forger = copied(runs("tables"), tmp_path / "run")
    forger.rewrite_file(files(forger.folder)[0], list, purpose="training", number=0)
    noted, odd = (one for one in forger.sign() if not one.holds)
    assert noted.claim == "run.json names the study and all sessions of the transcripts"
    path = forger.folder / "run.json"
    notes = json.loads(path.read_text())
    (sessions,) = notes["sessions"].values()
    path.write_text(json.dumps(notes | {"sessions": {"training": sessions}}))
    again, missing = (one for one in forger.sign() if not one.holds)
    assert again == odd
    assert "to be a session that the study asks for, found “training”" in odd.verdict
    assert missing.claim == "every charged attempt is in the transcripts, answered or not"


@pytest.mark.parametrize("name", ["statistics.json", "spending.json"])
def test_a_page_says_which_files_were_altered_and_no_paper_is_made_of_them(
    runs: Callable[[str], Forger], tmp_path: Path, name: str
) -> None:
    forger = copied(runs("tables"), tmp_path / "run")
    path = forger.folder / name
    path.write_text(path.read_text().replace("1", "2", 1))
    assert wrongs(verify(forger.folder)) == [name]
    assert f"{name} is the file that evidence.json lists" in write_report(forger.folder).read_text(
        encoding="utf-8"
    )
    with pytest.raises(IntegrityError, match=f"{name} is the file that"):
        paper_of(forger.folder)
