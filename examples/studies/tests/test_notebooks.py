"""The pages as notebooks: their format, and where the links lead."""

import json
import re

from examples.tools import notebooks
from examples.tools.guide_figures import blocks

KEYS = {
    "code": {"cell_type", "execution_count", "id", "metadata", "outputs", "source"},
    "markdown": {"cell_type", "id", "metadata", "source"},
}
OUTPUTS = {"stream": {"name", "output_type", "text"}, "display_data": {"data", "metadata", "output_type"}}


def test_a_notebook_has_the_format_and_all_blocks_of_its_page(tmp_path):
    notebooks.write(tmp_path, notebooks.pages())
    for page in notebooks.pages():
        check(page, tmp_path)


def check(page, tmp_path):
    """As nbformat 4.5 wants it: the keys of a cell, and names of cells that are there once."""
    found = json.loads((tmp_path / "notebooks" / f"{notebooks.name_of(page)}.ipynb").read_text())
    assert set(found) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert (found["nbformat"], found["nbformat_minor"]) == (4, 5)
    assert set(found["metadata"]["kernelspec"]) >= {"name", "display_name"}
    names = [cell["id"] for cell in found["cells"]]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)
    for cell in found["cells"]:
        assert set(cell) - {"attachments"} == KEYS[cell["cell_type"]]
        assert cell["source"]
        for output in cell.get("outputs", []):
            assert set(output) == OUTPUTS[output["output_type"]]
    code = [cell for cell in found["cells"] if cell["cell_type"] == "code"]
    there = blocks(page.read_text())
    assert [cell["source"] for cell in code] == [block.code.rstrip() for block in there]
    shown = [[one["output_type"] for one in cell["outputs"]] for cell in code]
    wanted = [["stream"] * bool(block.printed) + ["display_data"] * bool(block.picture) for block in there]
    assert shown == wanted
    words = "".join(cell["source"] for cell in found["cells"] if cell["cell_type"] == "markdown")
    assert "<!--" not in words
    assert not re.search(r"\]\((?!http|attachment:)[\w./-]+\)", re.sub(r"^```.*?^```$", "", words, flags=re.M | re.S))


def test_what_a_notebook_makes_of_a_page(tmp_path, monkeypatch):
    """Comments and links to pages go, a block that does not run is text, and a picture of no block is in its cell."""
    monkeypatch.setattr(notebooks, "GUIDE", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- long -->\n# Title\n\nSee [the\nother](b.md#x), [`f`](b.md) and [http](http://a.b).\n\n"
        "```python\nx = 1\n\nprint(x)\n```\n\n```text\n1\n```\n\n![Drawn](figures/a.png)\n\n```python skip\n# no\n```\n\n"
        "![There](../c.png)\n\n```text\nwords\n```\n"
    )
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "a.png").write_bytes(b"abc")
    (tmp_path.parent / "c.png").write_bytes(b"abc")
    first, code, last = notebooks.notebook(page)["cells"]
    assert first["source"] == f"# Title\n\n{notebooks.NOTE}\n\nSee **the\nother**, `f` and [http](http://a.b)."
    assert code["source"] == "x = 1\n\nprint(x)"
    stream, picture = code["outputs"]
    assert stream["text"] == "1\n"
    assert picture["data"] == {"image/png": "YWJj"}
    assert last["source"] == "```python\n# no\n```\n\n![There](attachment:c.png)\n\n```text\nwords\n```"
    assert last["attachments"] == {"c.png": {"image/png": "YWJj"}}


def test_a_page_links_to_its_notebook_below_its_title():
    text = "<!-- long -->\n# Title\n\nWords.\n\n```python\n# Comment\n```\n"
    for name, link in (("gam", "notebooks/gam.ipynb"), ("papers/gam", "../notebooks/papers/gam.ipynb")):
        linked = notebooks.with_link(text, name)
        assert linked.startswith(f'<!-- long -->\n# Title\n\n<p class="notebook"><a href="{link}" download>')
        assert linked.endswith("</p>\n\n\nWords.\n\n```python\n# Comment\n```\n")
        assert notebooks.with_link("# Title\n\nWords.\n", name) == "# Title\n\nWords.\n"
