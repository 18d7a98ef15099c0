"""One thread for each process that runs tests, and files in memory."""

import atexit
import gc
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestItem, DoctestModule
from hypothesis import HealthCheck, settings

gc.disable()  # while hundreds of modules are imported: until `pytest_runtestloop`

# No test fails because the machine is slow. `--hypothesis-profile=thorough` tries more examples.
for name, examples in (("quick", 25), ("thorough", 100)):
    settings.register_profile(
        name,
        deadline=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("quick")

# What is slow in these waits for `make nightly`: kills and random changes, papers that are made
# whole, databases, another language, each kind of question among machines, long calibrations,
# and how often intervals hold what they should.
NIGHTLY = (
    *("*/test_*kills.py", "learning/run/test_mutated_*.py", "learning/training/test_*_folders.py"),
    *(
        "experiment_scripts/*",
        "desk/drafting/test_six_cohorts.py",
        "learning/run/test_joint_batches.py",
    ),
    *(
        "site/sql/*",
        "other_language/*",
        "site/network/test_*over_nats.py",
        "site/network/test_*_apart.py",
    ),
    *(
        "site/network/test_absences.py",
        "site/network/test_floods.py",
        "site/network/test_images.py",
    ),
    *(
        "site/network/test_cuts.py",
        "site/network/test_roll_deaths.py",
        "site/network/test_runbooks.py",
        "site/attestation/test_verifiers.py",
    ),
    *(
        "site/network/test_same_bits.py",
        "learning/run/test_places.py",
        "estimation/test_shared_margins.py",
    ),
    *(
        "learning/validation/test_runs.py",
        "learning/coefficients/test_runs.py",
        "learning/training/test_sklearn.py",
    ),
    *(
        "core/ledger/test_cost.py",
        "core/privacy/test_rare_losses.py",
        "core/privacy/test_corners.py",
    ),
    *(
        "estimation/test_late_entries.py",
        "estimation/test_patterns.py",
        "core/sampling/test_hiding.py",
    ),
    *("estimation/test_newton_coverage.py", "learning/test_units.py"),
)
# Examples in docstrings that train models; what they show, tests hold.
SLOW_EXAMPLES = ("learning/sklearn/*", "learning/runs/*", "learning/audit/*")

# Read when torch and NumPy are loaded, which is after this file. Threads of OpenMP that wait for
# each other on cores that are taken make small models slower by a multiple.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# Files of tests are in memory where there is enough of it: thousands of ledgers would wait for a
# disk dozens of times each. PYTEST_DEBUG_TEMPROOT puts them elsewhere.
MEMORY = Path("/dev/shm")  # noqa: S108 (pytest makes folders of its own in it)
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# What code was run is noted for the user: for one that has run none before.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="hubbub-state-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_addoption(parser: pytest.Parser) -> None:
    """`--device cuda`: tests of that device fail where it is missing, instead of being skipped."""
    parser.addoption(
        "--device", default="", help="a device that has to be there, as cuda or cuda:1"
    )


class OwnExamples:
    """Doctests are looked for in files that have some: in a thousand it takes seconds."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, Any, Any]:
        """Leave out the doctests of a file without any."""
        nodes = yield
        if file_path.suffix != ".py" or b">>> " in file_path.read_bytes():
            return nodes
        return [one for one in nodes if not isinstance(one, DoctestModule)]


def pytest_configure(config: pytest.Config) -> None:
    """A hook of this file would count in `tests` alone."""
    config.pluginmanager.register(OwnExamples())


@pytest.fixture(autouse=True, scope="module")
def models_tried_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """A run in a test of something else does not try a model that another run has tried."""
    with pytest.MonkeyPatch.context() as patch:
        # The files in `learning` itself are of the trial, those in `project` of public names.
        # Without torch there is no model.
        if request.path.parent.name not in ("learning", "project") and "torch" in sys.modules:
            from tried import try_once

            try_once(patch)
        yield


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> str:
    """The GPU that was asked for, or any that torch sees."""
    asked = str(request.config.getoption("--device"))
    import torch

    if not asked and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU here; with --device cuda this fails")
    return asked or "cuda"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the cases that take long and whose law another case of the same test holds.

    A test names them where it stands: `slow_cases`, or `quick_cases` where few are quick.
    """
    named: dict[tuple[str, str], set[str]] = {}
    for item in items:
        if isinstance(item, DoctestItem) and _is_in(item, "src/hubbub", SLOW_EXAMPLES):
            item.add_marker("slow")
        case = item.name.partition("[")[2].removesuffix("]")
        for mark in _marks_of_cases(item):
            left = named.setdefault((item.nodeid.partition("[")[0], mark.name), set(mark.args))
            left.discard(case)
            if (case in mark.args) == (mark.name == "slow_cases"):
                item.add_marker("slow")
    for item in items:
        if item.get_closest_marker("slow") and _is_in(item, "tests", NIGHTLY):
            item.add_marker("nightly")
        elif item.get_closest_marker("nightly"):
            item.add_marker("slow")
    unknown = [f"{test}[{case}]" for (test, _), left in named.items() for case in sorted(left)]
    if unknown and not any("[" in one for one in config.args):
        raise pytest.UsageError(f"no such cases are there to be slow or quick: {unknown}")


def _marks_of_cases(item: pytest.Item) -> list[pytest.Mark]:
    """Those that name slow or quick cases: a test that is slow whole needs none."""
    found = [mark for mark in item.iter_markers() if mark.name in ("slow_cases", "quick_cases")]
    whole = getattr(getattr(item, "function", None), "pytestmark", ())
    if found and any(mark.name == "slow" for mark in whole):
        raise pytest.UsageError(f"{item.nodeid} is slow, with all cases: drop one mark")
    return found


def _is_in(item: pytest.Item, folder: str, patterns: tuple[str, ...]) -> bool:
    """Whether a test's file is one of those below a folder."""
    path = item.path.as_posix()
    return any(fnmatch(path, f"*/{folder}/{pattern}") for pattern in patterns)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """What was imported is looked through for garbage no more, and what tests make less often.

    pytest would hang its handlers on each of torch's forty loggers that keep their lines to
    themselves, six times a test.
    """
    for logger in logging.Logger.manager.loggerDict.values():
        logger.propagate = True
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()
