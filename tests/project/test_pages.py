"""The pages: whom each is for, how long it may be, and that what it names is there."""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from hubbub.core.errors import UserError
from hubbub.core.study.study_file import pages as tables_of_keys
from hubbub.desk.cli.main import _parser

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Made from the code, so nobody writes their words twice.
WRITTEN = tuple(
    DOCS / "reference" / f"{name}.md"
    for name in ("events", "kinds", "platforms", "refusals", "rooms", "wire")
)
OTHERS = tuple(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"))
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("*/*.md"), *OTHERS])
ELSEWHERE = sorted(
    page
    for pattern in ("*.md", "*/*.md", "benchmarks/*/*.md", "tests/core/protocol/vectors/*.md")
    for page in ROOT.glob(pattern)
)
# The most words that all pages for one reader may have together.
BUDGETS = {
    "an analyst": 9_170,
    "an administrator": 5_600,
    "an ethics board": 720,
    "an expert": 26_160,
    "a developer": 3_120,
    "an implementer": 6_190,
    "a researcher": 1_700,
}
LINK = re.compile(r"\]\(([^()\s]+)\)")
INLINE = re.compile(r"`(hubbub [a-z][^`\n]*)`")
FILE = re.compile(r"(?<![\w/.:-])((?:\w+/)+\w+\.py)(?![\w/.-])")
TYPED = re.compile(r"^ *(?:\w*\$ *)?(?:\S*/bin/)?(hubbub [a-z].*)$", re.MULTILINE)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def has_text_of_its_own(page: Path) -> bool:
    """Whether a page is more than a table of contents or another file, put in by the site."""
    return page not in (DOCS / "index.md", *WRITTEN) and "<!-- file " not in text_of(page)


def reader(page: Path) -> str:
    """Whom a page is for, as the first line below its title says."""
    first = re.sub(r"\A---\n.*?\n---\n+", "", text_of(page), flags=re.DOTALL).split("\n\n")[1]
    named = re.match(r"For (an? [a-z]+(?: board)?)\b", first)
    assert named, f"{name_of(page)}: {first[:60]}"
    return named[1]


def words(pages: list[Path]) -> int:
    """Words that somebody wrote: without tables that are made from results between two marks."""
    made = re.compile(r"(?s)<!-- anchors: \w+ -->.*?<!-- end -->")
    return sum(len(made.sub("", text_of(page)).split()) for page in pages)


def test_a_page_says_whom_it_is_for_and_no_reader_has_too_much_to_read() -> None:
    pages = [page for page in PAGES if has_text_of_its_own(page) and page not in OTHERS[:2]]
    readers = {page: reader(page) for page in pages}
    assert set(readers.values()) == set(BUDGETS)
    counts = {who: words([p for p in pages if readers[p] == who]) for who in BUDGETS}
    assert {who: n for who, n in counts.items() if n > BUDGETS[who]} == {}
    assert words([page for page in PAGES if page not in WRITTEN]) <= 54_690
    assert words([page for page in PAGES if page in WRITTEN]) <= 5_310
    assert words([ROOT / "README.md"]) <= 900
    assert words([ROOT / "CHANGELOG.md"]) <= 1_010


def anchors(page: Path) -> set[str]:
    """What a link may lead to: headings as GitHub and the site write them, and named places."""
    included = re.search(r"^<!-- file (\S+) -->$", text_of(page), re.MULTILINE)
    if included:
        return anchors((page.parent / included[1]).resolve())
    prose = re.sub(r"(?ms)^```.*?^```", "", text_of(page))
    heads = re.findall(r"(?m)^#+ (.+)$", prose)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head).lower() for head in heads]
    slugs = {re.sub(r"[^\w\- ]", "", head).strip().replace(" ", "-") for head in plain}
    return slugs | set(re.findall(r'<a id="([\w-]+)"></a>', prose))


def lost_links(page: Path, text: str) -> list[str]:
    """The links of a page's text that lead nowhere."""
    lost = []
    for target in LINK.findall(text):
        path, _, anchor = target.partition("#")
        if ":" in path:
            continue
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            lost.append(target)
    return lost


@pytest.mark.parametrize("page", sorted({*PAGES, *ELSEWHERE}), ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert lost_links(page, text_of(page)) == []


def test_every_link_of_a_key_of_a_study_leads_somewhere() -> None:
    """The site has them in tables, which the page itself leaves to it."""
    text = "\n".join(tables_of_keys().values())
    assert len(LINK.findall(text)) > 30
    assert lost_links(DOCS / "study.md", text) == []


def sources() -> Iterator[Path]:
    for folder in ("src", "tests", "deploy", "experiments", "benchmarks", "examples"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".yaml", ".cfg", ".conf", ".sh", ".toml", ".service"}:
                yield path


def test_every_page_that_code_names_is_there() -> None:
    named = {
        (name_of(path), page)
        for path in sources()
        for page in re.findall(r"(?<![\w/.])docs/[\w/-]+\.md(?:#[\w-]+)?", text_of(path))
    }
    assert len(named) > 100
    lost = []
    for path, target in sorted(named):
        page, _, anchor = target.partition("#")
        if not (ROOT / page).exists() or (anchor and anchor not in anchors(ROOT / page)):
            lost.append((path, target))
    assert lost == []


def commands(page: Path) -> Iterator[tuple[str, bool]]:
    """Every command of hubbub that a page shows, and whether in a block, for a reader to type."""
    text = re.sub(r"\\\n\s*", "", text_of(page))
    blocks = "\n".join(re.findall(r"(?ms)^```(?:console|text|sh)?\n(.*?)^```", text))
    blocks += "\n".join(re.findall(r"(?m)^ {4,}.*$", text))
    for pattern, shown in ((INLINE, text), (TYPED, blocks)):
        for line in pattern.findall(shown):
            for command in re.split(r" +#| [<>|] ?| 3< ", line)[0].split(" && "):
                yield command.strip(), pattern is TYPED


parser = cache(_parser)


def refusal(command: str) -> str:
    """What the command line says against a command, names in capitals being numbers or files."""
    words = shlex.split(re.sub(r"(?<= )[A-Z]+(?= |$)", "1", command))[1:]
    try:
        parser().parse_args(words)
    except UserError as error:
        return str(error)
    except SystemExit:  # it was asked for its version or for help
        pass
    return ""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_are_as_the_page_types_them(page: Path) -> None:
    """A sentence may name a command, or an option, without its arguments."""
    named = re.compile("arguments are required|expected one argument")
    wrong = [
        (command, why)
        for command, typed in commands(page)
        if (why := refusal(command)) and (typed or not named.search(why))
    ]
    assert wrong == []


def test_a_command_that_cannot_be_typed_is_noticed() -> None:
    assert refusal("hubbub plan study.toml --epsilon EPSILON") == ""
    assert "required" in refusal("hubbub plan")
    assert "--epsilom" in refusal("hubbub plan study.toml --epsilom 1")
    assert "did you mean plan?" in refusal("hubbub plann study.toml")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_has_python_or_make_do_is_there(page: Path) -> None:
    text = text_of(page)
    modules = set(re.findall(r"python -m ((?:experiments|benchmarks|hubbub)[a-z_.]*)\b", text))
    lost = [one for one in sorted(modules) if importlib.util.find_spec(one.rstrip(".")) is None]
    assert lost == []
    targets = set(re.findall(r"(?m)^([a-z][a-z-]*):", (ROOT / "Makefile").read_text()))
    named = set(re.findall(r"(?m)(?:^|`)make ([a-z][a-z-]*)", text))
    assert sorted(named - targets) == []
    tests = set(re.findall(r"(?<![\w/])tests/[\w/.-]*[\w/]", text))
    assert sorted(path for path in tests if not (ROOT / path.rstrip("/")).exists()) == []


RESULTS = ROOT / "experiments" / "results"


def values_of(names: Iterable[str]) -> list[float]:
    """Every number in the tables of some experiments."""
    paths = {path for name in names for path in RESULTS.glob(f"{name}*.csv")}
    cells = {cell for path in paths for cell in re.split(r"[,\n]", path.read_text("utf-8"))}
    return [float(cell) for cell in cells if re.fullmatch(r"-?[\d.]+(e-?\d+)?", cell)]


def lost_numbers(section: str) -> list[str]:
    """Measured numbers of a section that no table of an experiment that it names has.

    Of three digits behind the point and from .1 up: below are differences and standard errors.
    """
    names = set(re.findall(r"experiments\.(\w+)", section))
    names |= {name.removesuffix(".csv") for name in re.findall(r"`(\w+)(?:\.csv)?`", section)}
    if "anchors" in names:
        names |= {"foundation", "linear_probe", "correlated_noise"}
    there = values_of(names)
    numbers = re.findall(r"(?<![\w.])\d*\.\d{3,4}(?![\w.])", section)
    return [
        number
        for number in numbers
        if float(number) >= 0.1
        and not any(
            abs(float(number) - value) <= 0.51 * 10.0 ** -len(number.partition(".")[2])
            for value in there
        )
    ]


def test_each_number_among_the_experiments_is_in_a_table_of_those_that_its_section_names() -> None:
    page = text_of(DOCS / "experiments.md")
    sections = re.split(r"(?m)^## ", page)[1:]
    lost = {section.splitlines()[0]: lost_numbers(section) for section in sections}
    assert {head: numbers for head, numbers in lost.items() if numbers} == {}
    assert len(re.findall(r"\.\d{3}", page)) > 140
    assert lost_numbers("`python -m experiments.wide` gives .7433 and .123") == [".7433", ".123"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pieces_of_studies_and_programs_can_be_read(page: Path) -> None:
    for language, piece in re.findall(r"(?ms)^```(toml|python)\n(.*?)^```", text_of(page)):
        if language == "python":
            compile(piece, name_of(page), "exec")
        else:  # where a page shows several targets, each by itself
            for each in re.split(r"(?m)^(?=target = )", piece):
                tomllib.loads(each)


def is_there(path: str) -> bool:
    """Whether a file is at this place from the root, from `src/hubbub`, or from its core."""
    return any((ROOT / folder / path).exists() for folder in ("", "src/hubbub", "src/hubbub/core"))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_python_file_that_a_page_names_with_its_folder_exists(page: Path) -> None:
    quoted = re.findall(r"`([^`\n]+)`", text_of(page))
    named = {path for text in quoted for path in FILE.findall(text)}
    assert sorted(path for path in named if not is_there(path)) == []


def test_the_glossary_explains_a_word_once() -> None:
    entries = re.findall(r"\*\*([^*]+)\*\*(?=[:,]| \()", text_of(DOCS / "glossary.md"))
    words = [word for head in entries for word in head.split(", ")]
    assert len(words) > 60
    assert sorted(word for word in words if words.count(word) > 1) == []
