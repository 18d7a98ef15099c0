"""The public names: what each of them is, and that it says what it takes, gives and refuses."""

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import hubbub
from hubbub import learning

SOURCE = Path(hubbub.__file__).parent
NAMES = [name for name in hubbub.__all__ if name != "learning"]
LEARNING = [name for name in learning.__all__ if callable(getattr(learning, name))]
REFUSE_NOTHING = {"held_back", "threads_for"}
OTHER_WORDS = {"as_dict", "as_json", "as_plain", "as_rows", "json", "plain", "to_plain"}
UNITS = re.compile(
    r"no unit|how many|number of|bytes|bits|probability|grid steps|in units of|steps|nats",
    re.IGNORECASE,
)


def public(name: str) -> Any:
    """A public name's object, of hubbub or of hubbub.learning."""
    return getattr(hubbub if name in NAMES else learning, name)


def of_kind(kind: Any) -> list[str]:
    return [name for name in dict.fromkeys((*NAMES, *LEARNING)) if kind(public(name))]


FUNCTIONS, CLASSES = of_kind(inspect.isfunction), of_kind(inspect.isclass)


def section(doc: str, title: str) -> str:
    """The text of one section of a docstring, empty if it has none."""
    found = re.search(rf"^{title}:\n((?:[ ]{{4}}.*\n|\n(?=[ ]))+)", doc + "\n", re.MULTILINE)
    return found[1] if found else ""


def entries(doc: str) -> dict[str, str]:
    """What `Args:` says of each name; several names may share an entry."""
    parts = re.split(r"^ {4}(?=\S)", section(doc, "Args"), flags=re.MULTILINE)[1:]
    pairs = (part.partition(":")[::2] for part in parts)
    return {name.strip(): text for names, text in pairs for name in names.split(",")}


def python(script: str) -> None:
    subprocess.run([sys.executable, "-c", script], check=True, timeout=600)


def test_every_function_and_class_is_looked_at() -> None:
    others = set(NAMES) | set(LEARNING)
    assert set(FUNCTIONS) | set(CLASSES) == others
    assert {"Plan", "Records", "Column", "ClippedSum"} <= set(CLASSES)
    assert {"plan", "run", "resume", "clipped_sum"} <= set(FUNCTIONS)


@pytest.mark.parametrize("name", NAMES)
def test_no_public_name_is_a_module_too(name: str) -> None:
    assert importlib.util.find_spec(f"hubbub.{name}") is None
    assert not inspect.ismodule(public(name))


@pytest.mark.slow
def test_plan_is_a_function_whatever_was_imported_before() -> None:
    python(
        "import hubbub.core.planning.accounts, hubbub.core.planning.study_plan\n"
        "import hubbub, inspect, sys\n"
        "assert inspect.isfunction(hubbub.plan)\n"
        "assert hubbub.plan is hubbub.core.planning.study_plan.plan\n"
        "assert not any(name.startswith('hubbub.plan.') for name in sys.modules)\n"
        "assert not hasattr(hubbub.plan, 'pairing')\n"
    )
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("hubbub.plan")


@pytest.mark.parametrize("stub", sorted(SOURCE.rglob("*.pyi")), ids=lambda stub: stub.parent.name)
def test_a_room_hands_out_what_its_stub_imports(stub: Path) -> None:
    """A name of a file in the room would become that file once somebody imports it."""
    room = importlib.import_module(".".join(["hubbub", *stub.parent.relative_to(SOURCE).parts]))
    lines = [line for line in ast.parse(stub.read_bytes()).body if isinstance(line, ast.ImportFrom)]
    places = {one.name: line.module for line in lines for one in line.names}
    assert len(places) > 2
    for name, place in places.items():
        found = getattr(room, name)
        if place is None:
            assert found is importlib.import_module(f"{room.__name__}.{name}")
            continue
        assert getattr(importlib.import_module(f".{place}", room.__name__), name) is found
        assert inspect.ismodule(found) or not (stub.parent / f"{name}.py").exists()
    with pytest.raises(AttributeError, match=r"No .* attribute nothing"):
        room.nothing  # noqa: B018


@pytest.mark.slow
def test_the_usual_question_and_the_usual_plan_load_no_more_than_they_need() -> None:
    """Imports take longer than both answers."""
    python(
        "import sys\n"
        "from hubbub.desk.cli.main import main\n"
        "asked = '--noise-multiplier 4 --sample-rate 0.1 --steps 5 --delta 1e-5'\n"
        "assert main(['epsilon', *asked.split()]) == 0\n"
        "import hubbub\n"
        "text = '''study.name = 'example'\n"
        "parties = {silos = 4, colluders = 1}\n"
        "data = {source = 'hubbub.datasets:heart', records = 740}\n"
        "model = {kind = 'logistic', inputs = [26]}\n"
        "training = {steps = 5, sample_rate = 0.1}\n"
        "privacy = {epsilon = 1.0, delta = 1e-5}\n'''\n"
        "hubbub.plan(hubbub.Study.parse(text))\n"
        "unused = ('scipy', 'numpy.ma.', 'numpy.random', 'hubbub.core.session')\n"
        "assert [name for name in sys.modules if name.startswith(unused)] == []\n"
        "estimation = {name for name in sys.modules if name.startswith('hubbub.estimation.')}\n"
        "assert all(name.endswith(('.queries', '_ask')) for name in estimation)\n"
    )


def test_scipy_is_imported_where_it_is_used() -> None:
    """It takes longer than all else that a silo reads for its part but torch."""
    early = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Import | ast.ImportFrom) and "scipy" in ast.unparse(node)
    }
    assert early == {"learning/audit/power.py"}  # which an audit alone reads


@pytest.mark.slow
def test_import_of_hubbub_loads_neither_torch_nor_an_engine() -> None:
    python(
        "import hubbub, sys\n"
        "hubbub.Records, hubbub.Column, hubbub.plan\n"
        "assert not {'torch', 'nats', 'pyarrow', 'safetensors'} & set(sys.modules)\n"
    )


@pytest.mark.slow
def test_commands_that_fail_and_statistics_wait_for_no_torch(tmp_path: Path) -> None:
    """It takes seconds to load, and none of them has a model yet."""
    python(
        "import os, sys\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "from hubbub.desk.cli.main import main\n"
        "text = '''study.name = 'example'\n"
        "parties = {names = ['a', 'b', 'c'], colluders = 1}\n"
        "data = {files = '{name}.csv', target = 'y', records = 9, "
        "columns = {x = {low = 0, high = 1}}, positive = ['1'], negative = ['0']}\n"
        "model = {kind = 'logistic'}\n"
        "training = {steps = 2, sampling = 'full-batch'}\n"
        "privacy = {epsilon = 1.0, delta = 1e-5}\n'''\n"
        "open('study.toml', 'w').write(text)\n"
        "for typed in ('run study.toml', 'run study.toml --baseline none', 'report nowhere',\n"
        "    'run --resume nowhere', 'compare study.toml', 'rehearse study.toml',\n"
        "    'predict nowhere x.csv', 'audit study.toml --runs 1'):\n"
        "    assert main(typed.split()) == 2, typed\n"
        "    assert 'torch' not in sys.modules, typed\n"
        "import hubbub\n"
        "silos = {one: {'x': [0.5] * 300} for one in 'abc'}\n"
        "columns = {'x': {'low': 0, 'high': 1}}\n"
        "asked = hubbub.statistics(silos, columns=columns, epsilon=1)\n"
        "assert asked.query([{'kind': 'table'}], epsilon=1).release().statistics\n"
        "assert 'torch' not in sys.modules\n"
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_says_what_it_takes_gives_and_refuses(name: str) -> None:
    function = public(name)
    doc, signature = inspect.getdoc(function) or "", inspect.signature(function)
    assert set(entries(doc)) == set(signature.parameters)
    gives = signature.return_annotation not in (None, "None")
    assert bool(section(doc, "Returns")) == gives
    assert bool(section(doc, "Raises")) == (name not in REFUSE_NOTHING)
    assert ">>> " in doc


def fields_of(kind: Any) -> set[str]:
    if dataclasses.is_dataclass(kind):
        return {field.name for field in dataclasses.fields(kind)}
    if hasattr(kind, "_fields"):
        return set(kind._fields)
    return set(inspect.signature(kind).parameters)


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_says_what_each_field_is(name: str) -> None:
    kind = public(name)
    doc = inspect.getdoc(kind) or ""
    assert set(entries(doc)) == fields_of(kind)
    assert ">>> " in doc


def members(kind: Any) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class has of its own."""
    for name, value in vars(kind).items():
        if not name.startswith("_") and (hasattr(value, "__get__") or callable(value)):
            yield name, value


def made_from(value: Any) -> Any:
    """The function behind a property, a cached one, a class method or a static one."""
    for part in ("fget", "func", "__func__"):
        value = getattr(value, part, None) or value
    return value


@pytest.mark.parametrize("name", CLASSES)
def test_a_method_says_what_it_takes_and_gives(name: str) -> None:
    for member, value in members(public(name)):
        function = made_from(value)
        if not inspect.isfunction(function):
            continue  # the default of a field
        doc = inspect.getdoc(function) or ""
        assert doc, member
        taken = set(inspect.signature(function).parameters) - {"self", "cls"}
        assert set(entries(doc)) == taken, member
        gives = inspect.signature(function).return_annotation not in (None, "None")
        assert not taken or bool(section(doc, "Returns")) == gives, member


@pytest.mark.parametrize("kind", [hubbub.Plan, hubbub.Result])
def test_every_number_of_a_plan_and_a_result_has_a_unit(kind: Any) -> None:
    said = entries(inspect.getdoc(kind) or "")
    numbers = {
        field: said[field] for field, hint in get_type_hints(kind).items() if is_number(hint)
    }
    for name, value in members(kind):
        function = made_from(value)
        if inspect.isfunction(function) and is_number(get_type_hints(function)["return"]):
            numbers[name] = inspect.getdoc(function) or ""
    assert len(numbers) > (10 if kind is hubbub.Plan else 0)
    assert [name for name, text in numbers.items() if not UNITS.search(text)] == []


def is_number(hint: Any) -> bool:
    return hint in (int, float, int | None, float | None)


def test_plain_forms_have_one_pair_of_names() -> None:
    method = re.compile(r"^ {4}def (\w+)\(self\) -> (.+):$", re.MULTILINE)
    texts = (path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    found = [pair for text in texts for pair in method.findall(text)]
    assert [name for name, _ in found if name in OTHER_WORDS] == []
    assert {gives.split("[")[0] for name, gives in found if name == "to_dict"} == {"dict"}
    assert {gives for name, gives in found if name == "to_json"} == {"str"}


def test_only_models_need_torch_and_only_what_an_extra_names_needs_that_extra() -> None:
    """A site that sums a table, a node and who verifies install neither torch nor a database."""
    python(
        "import importlib, pkgutil, sys\n"
        "missing = {'torch', 'nats', 'nkeys', 'aiohttp', 'sqlglot', 'duckdb', 'psycopg',\n"
        "    'pyarrow', 'pandas', 'polars', 'sklearn', 'docx', 'cbor2', 'dcap_qvl', 'numba'}\n"
        "class Bare:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in missing:\n"
        "            raise ModuleNotFoundError(name, name=name.partition('.')[0])\n"
        "sys.meta_path.insert(0, Bare())\n"
        "import hubbub\n"
        "mine = {'torch': 'hubbub.learning.', 'sklearn': ('hubbub.learning.', 'hubbub.sklearn'),\n"
        "    'sqlglot': 'hubbub.site.sql.'}\n"
        "for module in pkgutil.walk_packages(hubbub.__path__, 'hubbub.', lambda name: None):\n"
        "    try:\n"
        "        importlib.import_module(module.name)\n"
        "    except ModuleNotFoundError as error:\n"
        "        assert module.name.startswith(mine.get(error.name, ' ')), (module.name, error)\n"
    )
