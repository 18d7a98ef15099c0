"""A silo's lists: how long one serves, and whose fault is complained of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.session import token_lists
from hubbub.core.session.token_lists import SiloTokenLists, _Making


def silo_lists() -> Any:
    """Of a silo whose list serves three attempts, and is in the making."""
    context = mock.Mock()
    context.roster.name = ["aggregator", "ann", "bob"].__getitem__
    made = SiloTokenLists(
        keys=mock.Mock(),
        index=1,
        list_context=context,
        counts=(4, 4),
        attempts_per_list=3,
        epoch=3,
        batches=mock.Mock(),
    )
    made._mixer = mock.Mock()
    return made


def test_p9_a_list_serves_its_attempts_and_no_more() -> None:
    lists = silo_lists()
    lists._take([])
    for round in (1, 2, 3, 4):
        model = SimpleNamespace(tag=Tag.MODEL, sender=0, round=round)
        lists.list_context.parse.return_value = model
        if round < 4:
            lists.prepare(b"", is_open=False)
            lists.use(round)
    with pytest.raises(ProtocolError, match="before the MODEL of round 4"):
        lists.prepare(b"", is_open=False)


@pytest.mark.parametrize("culprit", ["relay", "bob", "ann"])
def test_p9_a_silo_complains_of_the_mixer_alone_whose_list_lacks_its_token(
    monkeypatch: pytest.MonkeyPatch, culprit: str
) -> None:
    """Who complains of what another did is found to have lied, once the list is opened."""
    lists = silo_lists()
    lists._mixer.look.side_effect = ProtocolError("wrong", culprit=culprit)
    lists.list_context.parse.return_value = SimpleNamespace(signed=b"")
    shown = SimpleNamespace(tag=Tag.MIX_NAMES, attempt=1)
    monkeypatch.setattr(token_lists, "unverified", lambda _: shown)
    if culprit == "ann":
        assert lists._look([bytes(99)])[1] is lists._mixer.complain.return_value
        return
    with pytest.raises(ProtocolError, match="wrong"):
        lists._look([bytes(99)])
    lists._mixer.complain.assert_not_called()


def test_p9_a_silo_judges_by_the_keys_and_the_names_that_it_was_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From others an honest silo could be found guilty."""
    lists, read = silo_lists(), mock.Mock()
    read.return_value.verdict.return_value = ProtocolError("found", culprit="bob")
    monkeypatch.setattr(token_lists.OpenedList, "read", read)
    shown = SimpleNamespace(tag=Tag.MIX_NAMES, attempt=1)
    monkeypatch.setattr(token_lists, "unverified", lambda _: shown)
    lists._wrap([b"key"])
    lists._look([b"name"])
    for parts in ([b"key", b"other"], [b"other", b"name"]):
        with pytest.raises(ProtocolError, match="got other frames"):
            lists._judge(parts)
    with pytest.raises(ProtocolError, match="found"):
        lists._judge([b"key", b"name"])


def test_p9_a_complaint_about_a_list_that_was_not_shown_opens_nothing() -> None:
    making: Any = _Making.__new__(_Making)
    making._names, making._list_context, making._all = [], mock.Mock(), mock.Mock()
    making._roster = mock.Mock()
    making._roster.name.return_value = "ann"
    with pytest.raises(ProtocolError, match="got one before") as caught:
        making._settle(bytes(200))
    assert caught.value.culprit == "ann"
    making._all.assert_not_called()
