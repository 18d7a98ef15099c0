"""A collection that bears a session's id: no row of the one pays for the other (P15, P30)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hubbub.core.protocol.primitives.wire import Tag, unverified
from hubbub.core.session.ask import Call
from hubbub.core.session.offer import SessionOffer, round_parameters_of
from hubbub.site.collected.collection_frames import CollectionPlace
from hubbub.site.collected.collection_request import collect_frame
from hubbub.site.network.envelope import read_answer, read_request, request
from hubbub.site.network.folder_files import SessionNotes
from network.collected import collect, noised, sums
from network.consortium import HOSPITALS, Consortium, planned
from network.consortium import table as study_table

__all__ = ["noised", "sums"]  # fixtures
NODES = ("node-1", "node-2", "node-3")


def _tags(parties: Consortium, whose: str, call: Call, id_: bytes, *parts: bytes) -> list[Tag]:
    answers = read_answer(parties.seats[whose].answer(request(call, id_, parts)))
    return [unverified(one).tag for one in answers]


def test_p30_a_row_of_a_session_pays_for_no_collection_of_its_id(
    tmp_path: Path, noised: Any, sums: Any
) -> None:
    made = study_table(HOSPITALS, 3, privacy={"epsilon": 8.0})
    made["data"]["standardise"] = {"bound": 5.0, "epsilon": 1.0}
    parties = Consortium.gather(tmp_path, made)
    collect(parties)  # the standardisation, whose one row is used up by it
    numbers = round_parameters_of(planned(parties.study, 27).planned("standardisation"))
    honest, deposited = parties.phase, []

    def deposits(id_: bytes) -> list[list[Tag]]:
        place = CollectionPlace(
            roster=parties.aggregator.roster, study=parties.study.id, session=id_
        )
        offer = SessionOffer.of("standardisation", numbers)
        opened = collect_frame(place, parties.aggregator.keys, offer, 1e6)
        keys = []
        for node in NODES:
            answers = parties.seats[node].answer(request(Call.COLLECT_KEY, id_, [opened]))
            keys += read_answer(answers)[:1]
        return [_tags(parties, one, Call.COLLECT_DEPOSIT, id_, opened, *keys) for one in HOSPITALS]

    def phase(name: str, requests: Mapping[str, bytes], deadline: float) -> Iterator[Any]:
        call, session, _ = read_request(next(iter(requests.values())))
        if call is Call.MODEL and not deposited:
            deposited.append(deposits(session))  # before the session has a row, and after it
            yield from honest(name, requests, deadline)
            deposited.append(deposits(session))
            return
        yield from honest(name, requests, deadline)

    parties.serve(phase)
    assert len(deposited) == 2
    assert all(tags == [Tag.REFUSAL] for tries in deposited for tags in tries)


def test_a_session_is_opened_once_whoever_asks_again(tmp_path: Path) -> None:
    session = bytes(range(16))
    assert SessionNotes(home=tmp_path).open_session(session)
    assert not SessionNotes(home=tmp_path).open_session(session)
    assert SessionNotes(home=tmp_path).open_session(bytes(16))
