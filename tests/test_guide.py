"""Every block of the guide runs, in order and in one namespace for each page, and prints what the page says."""

import re

import jax
import matplotlib.pyplot as plt
import pytest

from examples.tools import guide_figures
from examples.tools.guide_figures import GUIDE, PageError, blocks, differs, run
from tests import by_numpy

PAGES = sorted(page for page in GUIDE.rglob("*.md") if blocks(page.read_text()))
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def name_of(page):
    return str(page.relative_to(GUIDE).with_suffix(""))


@pytest.fixture
def as_for_readers(tmp_path, monkeypatch):
    """JAX's defaults, float32 among them, its own small functions, and an empty folder to write to."""
    monkeypatch.setattr(by_numpy, "is_on", False)
    settings = {name: getattr(jax.config, name) for name in ("jax_enable_x64", "jax_numpy_rank_promotion")}
    jax.config.update("jax_enable_x64", False)
    jax.config.update("jax_numpy_rank_promotion", "allow")
    monkeypatch.chdir(tmp_path)
    yield
    plt.close("all")
    for name, value in settings.items():
        jax.config.update(name, value)


def is_long(page):
    """Pages that say so in their first line run in the second stage."""
    return page.read_text().startswith("<!-- long -->")


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=name_of(page), marks=[pytest.mark.long] * is_long(page)) for page in PAGES]
)
@pytest.mark.usefixtures("as_for_readers")
def test_the_blocks_of_a_page_run(page):
    def look(block, printed):
        problem = block.printed and differs(printed, block.printed, block.varies)
        assert not problem, f"{page.name}, line {block.line}: {problem}"

    run(page, look)


@pytest.mark.parametrize("page", sorted(GUIDE.rglob("*.md")), ids=name_of)
def test_links_and_pictures_are_there(page):
    """Pages of the API are made by Sphinx."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    for target in LINK.findall(text):
        if not target.startswith(("http", "api/")):
            linked = (page.parent / target).resolve()
            assert (page.parent / target).exists(), f"{name_of(page)} links to {target}, which is not there"
            if linked.suffix == ".md":
                assert linked.is_relative_to(GUIDE), f"{name_of(page)} links to {target}, no page of the documentation"


def test_errors_made_on_purpose_have_a_heading_of_their_words():
    text = (GUIDE / "troubleshooting.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.M)
    (printed,) = (block.printed for block in blocks(text) if block.printed)
    for line in printed.splitlines():
        assert any(line.startswith(heading) for heading in headings), f"no heading begins {line!r}"


def test_every_page_is_reached_from_the_index():
    named = set(re.findall(r"^([\w/]+)$", (GUIDE / "index.md").read_text(), re.M))
    pages = {name_of(page) for page in GUIDE.rglob("*.md")} - {"index"}
    assert {name for name in pages if not name.startswith("api/")} <= named


def test_every_picture_is_shown_and_small():
    shown = {target for page in GUIDE.rglob("*.md") for target in re.findall(r"figures/[\w.]+", page.read_text())}
    shown |= set(re.findall(r"figures/[\w.]+", (GUIDE.parent.parent / "README.md").read_text()))
    for picture in GUIDE.glob("figures/*"):
        assert f"figures/{picture.name}" in shown, f"{picture.name} is on no page"
        assert picture.stat().st_size < 150_000, f"{picture.name} is large"


def test_a_failing_block_names_its_page_and_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\nx = 1\n```\nWords\n```python skip\nraise\n```\n\n```python\n\nx.y\n```\n")
    assert [block.line for block in blocks(page.read_text())] == [4, 12]
    with pytest.raises(PageError, match=r"page\.md, line 13: AttributeError"):
        run(page)


def test_what_is_printed_is_compared():
    assert differs("a  1.00 x\n", "a 1.02 ...\n") is None
    assert "printed 2.0 where the page has 1.0" in differs("2.0", "1.0")
    assert "where the page has" in differs("b 1.0", "a 1.0")
    assert differs("a 2.0", "a 1.0", varies=True) is None
    assert differs("b 1.0", "a 1.0", varies=True) is not None
    assert differs("a 2.0 !\n------", "a 1.0\n----", varies=True) is None
    assert differs("a 2.0 !", "a 2.0") is not None
    text = "```python\nprint(1)\n```\n\n```text\n1\n```\n\n![Words](figures/a.png)\n\n```text\nother\n```\n"
    assert blocks(text) == [guide_figures.Block(2, "print(1)\n", "1\n", "figures/a.png")]
