"""Every error that hubbub raises on purpose: one tree, whose branches say whose fault it is.

    HubbubError
    ├── UserError              the person at this keyboard can fix it
    │   ├── StudyError         a study file, or an argument of the Python surface
    │   ├── DataError          records, a schema, a file of records
    │   └── ModelError         a model that cannot be trained with a per-record guarantee
    ├── ProtocolError          another party sent what the protocol forbids (`culprit` names it)
    ├── AttestationError       evidence of an attested party that does not hold (`rule` says why)
    ├── BudgetError            a cap, or the number of attempts that was planned, refuses the next
    │   ├── NoRoomError        the study has to wait for others, which a cap lets through
    │   └── SpentError         the study itself is over: no cap would let in another attempt
    ├── EffortError            checking a stranger's numbers would take longer than was allowed
    └── IntegrityError         something stored was altered, truncated or cannot be read back

Messages are one sentence: what was expected, what was found, what to do. They never hold a secret
or a value taken from a record. This file knows no other file of the package.
"""

from __future__ import annotations


class UncountedWarning(UserWarning):
    """Something is learned again from records of which no ledger counts what was learned before."""


class UnnoisedWarning(UserWarning):
    """Something that was learned from private rows reaches a model without noise."""


class HubbubError(Exception):
    """Base of all deliberate errors; catch this to catch them all.

    What is raised while records are read or a model sees them may tell of records, by a place, a
    class or by being raised at all: such a text is for the screen of the records' own people, and
    no log has it. `free_of_records` is True of the others.
    """

    free_of_records = True


class UserError(HubbubError, ValueError):
    """Bad input from the person who runs the command or calls the function."""


class StudyError(UserError):
    """A study, or a privacy parameter, that is malformed, out of range or contradictory."""


class DataError(UserError):
    """Records or files of records that do not fit what the study declares."""

    free_of_records = False


class ModelError(UserError):
    """A model, loss or optimizer that cannot be trained with a per-record guarantee."""

    free_of_records = False


class ProtocolError(HubbubError):
    """Another party, the `culprit` unless nobody can be singled out, broke the protocol."""

    def __init__(self, message: str, *, culprit: str = "") -> None:
        super().__init__(f"{culprit}: {message}" if culprit else message)
        self.culprit = culprit


# Why evidence may not hold; docs/attestation.md says what each of them asks for.
RULES = (
    *("size", "spelling", "signature", "chain", "expired", "revocation", "collateral", "time"),
    *("platform", "debug", "migration", "measurement", "tcb", "status", "advisory"),
    *("report-data", "freshness"),
)


class AttestationError(HubbubError):
    """Evidence of an attested party does not hold: the rule that it fails, one of `RULES`."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


class BudgetError(HubbubError):
    """The next step would carry a data set past its cap, or a run past its attempts."""


class NoRoomError(BudgetError):
    """A study has to wait for others that a cap lets through: nothing was made of it or paid."""


class SpentError(BudgetError):
    """A study has made its attempts, or was closed: whoever asks for another asks too much."""


class EffortError(HubbubError):
    """What somebody else chose would take more work than was allowed for it."""


class IntegrityError(HubbubError):
    """A stored file was altered, truncated or half-written."""


def loggable(error: HubbubError) -> str:
    """What a log may have of an error.

    >>> loggable(DataError("expected a number, got another in row 3"))
    'expected records and a model that fit the study, got others; hubbub check lists what is wrong'
    """
    return str(error) if error.free_of_records else _OF_RECORDS


_OF_RECORDS = (
    "expected records and a model that fit the study, got others; hubbub check lists what is wrong"
)


def with_extra(name: str) -> str:
    """How a missing extra of pyproject.toml, or several with commas, is installed."""
    return f"pip install '.[{name}]', the dot being hubbub's source folder or a release's wheel"


def printable(text: str) -> str:
    """A text that somebody else chose, for a sentence: what is not printable becomes "?"."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
