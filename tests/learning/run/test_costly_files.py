"""A stranger's numbers do not decide how long a check takes; what is left out for that is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hubbub
from hubbub.core.errors import EffortError
from hubbub.core.planning import accounts, study_plan
from hubbub.core.planning.exposure import epsilon_against
from hubbub.core.privacy import accountant, transform
from hubbub.core.privacy.arguments import limited
from hubbub.core.protocol.agreement import masks
from hubbub.core.session.in_process import Federation
from hubbub.core.verification.evidence import claims
from hubbub.core.verification.evidence.collecting import FILE
from hubbub.core.verification.evidence.evidence_file import NOT_CHECKED, REDERIVED, with_signature
from hubbub.core.verification.replay.checking import row_findings
from hubbub.desk.cli.main import main
from run.finished import a_study, finished

COSTLY = {
    "a million steps at a rate of a millionth": ("add-remove", "poisson", 10**6, 1e-6, "", 10**9),
    "the same where records are exchanged": ("substitute", "poisson", 10**6, 1e-6, "", 10**9),
    "projections to three numbers": (
        *("substitute", "poisson", 10**6, 1e-6),
        *('projection = 3, projection_kind = "sign",', 10**9),
    ),
    "half of a million million records": (
        *("substitute", "without-replacement", 10, 0.5, "", 10**12),
    ),
}


def costly(relation: str, sampling: str, steps: int, rate: float, more: str, records: int) -> str:
    """A study of a few lines whose account takes a minute, or so."""
    return f"""
    study.name = "costly"
    parties = {{ silos = 4, colluders = 1 }}
    data = {{ source = "hubbub.datasets:heart", records = {records} }}
    model = {{ kind = "logistic", inputs = [26] }}
    training = {{ {more} steps = {steps}, sampling = "{sampling}", sample_rate = {rate} }}
    privacy = {{ epsilon = 1.0, delta = 1e-10, relation = "{relation}" }}
    """


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Federation]:
    """The folder of a finished run, and its parties."""
    folder = tmp_path_factory.mktemp("costly") / "run"
    return folder, finished(a_study(), folder)[1]


REMEMBERED = (
    claims.remade,
    epsilon_against,
    transform._coarse,
    accountant._worst_epsilon,
    study_plan._power,
)


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    """What was computed before costs nothing, and would hide what others' files cost."""
    nothing_is_known()


def nothing_is_known() -> None:
    """As in a process that has computed no epsilon yet."""
    for one in REMEMBERED:
        one.cache_clear()


@pytest.mark.slow_cases("projections to three numbers")
@pytest.mark.parametrize("case", COSTLY)
def test_an_account_within_a_limit_stops_before_it_works_past_it(case: str) -> None:
    with pytest.raises(EffortError, match="more"), limited(claims.MOST_POINTS / 20):
        hubbub.plan(hubbub.Study.parse(costly(*COSTLY[case])))


def test_usual_accounts_are_far_below_the_limit() -> None:
    with limited(claims.MOST_POINTS / 2):
        made = hubbub.plan(a_study())
        claims.spent(made, 1)


def test_a_limit_inside_another_allows_no_more() -> None:
    with limited(10), limited(None), limited(1e9), pytest.raises(EffortError):
        hubbub.plan(a_study())
    hubbub.plan(a_study())  # and is over with its block


def test_the_graph_of_a_crowd_is_weighed_in_few_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its odds fall so fast that a hundred thousand silos need a few thousand terms."""
    round_parameters: list[int] = []
    exact = masks._log_choose
    monkeypatch.setattr(
        masks, "_log_choose", lambda *given: (round_parameters.append(1), exact(*given))[1]
    )
    assert masks.failure_bits(100_000, 30_000, 10_000, 45_000) > 40
    assert masks.failure_bits(100_000, 49_000, 49_000, 60_000) < 1
    assert len(round_parameters) < 3 * 20_000


@pytest.mark.slow
def test_evidence_of_a_costly_study_is_not_checked_and_no_pass(
    made: tuple[Path, Federation],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, parties = made
    monkeypatch.setattr(claims, "MOST_POINTS", claims.MOST_POINTS / 20)
    content = json.loads((folder / FILE).read_text())
    del content["signature"]
    study = hubbub.Study.parse(costly(*COSTLY["a million steps at a rate of a millionth"]))
    content["study"] = {"name": study.name, "id": study.id.hex(), "toml": study.as_toml()}
    theirs = tmp_path / "theirs.json"
    theirs.write_text(with_signature(content, parties.keys[0].sign))
    assert main(["verify", str(theirs), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["complete"] is False
    (left,) = [one["claim"] for one in said["findings"] if one["verdict"] == NOT_CHECKED]
    assert left == "the plan and its epsilons follow from the study"
    main(["verify", str(theirs)])
    assert f"{left}? not checked" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False])
def test_what_is_left_out_is_no_pass_and_is_done_on_demand(
    made: tuple[Path, Federation],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    whole: bool,
) -> None:
    folder, _ = made
    monkeypatch.setattr(claims, "MOST_POINTS", 10)

    def asked(*more: str) -> dict[str, Any]:
        code = main(["verify", str(folder if whole else folder / FILE), "--json", *more])
        said: dict[str, Any] = json.loads(capsys.readouterr().out)
        return {"code": code, **said}

    said = asked()
    assert (said["code"], said["holds"], said["complete"]) == (1, True, False)
    if whole:
        left = [one["claim"] for one in said["findings"] if one["verdict"] == NOT_CHECKED]
        assert "plan.json follows from study.toml" in left
        assert any("follow from the transcripts" in one for one in left)
    said = asked("--thorough")
    assert (said["code"], said["holds"], said["complete"]) == (0, True, True)


@pytest.mark.slow
def test_metrics_of_many_rows_are_looked_at_within_the_limit(
    made: tuple[Path, Federation], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = made
    planned = claims.remade(hubbub.Study.parse((folder / "study.toml").read_text()), 27)
    assert planned is not None
    nothing_is_known()
    accounts._epsilon_of.cache_clear()
    content = json.loads((folder / FILE).read_text())
    with limited(1):
        assert (
            next(row_findings(folder / "metrics.jsonl", planned, content, [])).verdict
            == NOT_CHECKED
        )
    assert next(row_findings(folder / "metrics.jsonl", planned, content, [])).verdict == REDERIVED
