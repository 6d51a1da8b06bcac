"""The page of formulas and the code point at each other: numbers, files, and its place in the wheel."""

import functools
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "numpyro_gp"
PAGE = PACKAGE / "mathematics.md"
CITATION = re.compile(r"mathematics\.md[ `]+section (\d+(?:\.\d+)?)")


@functools.cache
def sections() -> dict[str, str]:
    """Text under each numbered heading, by number."""
    parts = re.split(r"(?m)^#{2,3} (\d+(?:\.\d+)?) .*$", PAGE.read_text())
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@functools.cache
def citations() -> dict[Path, set[str]]:
    """Numbers cited by each file of the project."""
    folders = (ROOT / name for name in ("numpyro_gp", "models", "examples", "tests"))
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".md")]
    return {path: set(CITATION.findall(path.read_text())) for path in files if path not in (PAGE, Path(__file__))}


def test_every_cited_section_exists():
    numbers = set(sections())
    for path, cited in citations().items():
        assert cited <= numbers, f"{path.relative_to(ROOT)} cites {sorted(cited - numbers)}"


def test_every_file_that_the_page_names_exists():
    for name in re.findall(r"`([\w/]+\.py)`", PAGE.read_text()):
        assert (PACKAGE / name).exists(), f"mathematics.md names {name}"


def test_what_the_package_says_stands_elsewhere_stands_there():
    """Files of tests, examples and models that code and page cite; the page cites no number of a test."""
    cited = re.compile(r"\b(tests|examples|models)(?:/([\w/]+\.(?:py|md))|\.([a-z_]+(?:\.[a-z_]+)*)\b)")
    for path in (path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".md")):
        for folder, file, module in cited.findall(path.read_text()):
            found = ROOT / folder / (file or f"{module.replace('.', '/')}.py")
            assert found.exists(), f"{path.relative_to(ROOT)} cites {found}"
    assert "tests' reference" not in PAGE.read_text()


def test_references_inside_the_page_lead_somewhere():
    text = PAGE.read_text()
    numbers = {
        number
        for found in re.findall(r"[Ss]ections? ([\d.]+(?:(?: to|,| and) [\d.]+)*)", text)
        for number in re.findall(r"\d+(?:\.\d+)?", found)
    }
    assert numbers <= set(sections())
    headings = {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in re.findall(r"(?m)^## (.*)$", text)}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) == headings
