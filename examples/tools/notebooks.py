"""The pages of the guide as notebooks, which run from top to bottom.

    python -m examples.tools.notebooks OUT [PAGE ...]      # without pages: all that have code

A block of ```` ```python ```` is a cell of code, and what the page shows as its print and its picture are the outputs
of that cell. All else is text. The built documentation has the notebook of each page behind a link below the title
(``examples/guide/conf.py``).
"""

import argparse
import base64
import json
import posixpath
import re
from pathlib import Path

from examples.tools.guide_figures import GUIDE, PARTS, blocks

# Where the notebooks lie, beside the built pages.
FOLDER = "notebooks"
TITLE = re.compile(r"^# .+$", re.M)
COMMENT = re.compile(r"^<!-- [^\n]* -->\n", re.M)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)\s]+\)")
IMAGE = re.compile(r"!\[([^\]]*)\]\((?!https?:)([^)\s]+)\)")
NOTE = (
    "*This is a page of the guide of numpyro_gp as a notebook. It needs the library, and runs from top to bottom. Names"
    " in bold type are other pages of the guide.*"
)


def name_of(page):
    """The name of a page as the table of contents has it: ``papers/gam``."""
    return str(page.relative_to(GUIDE).with_suffix(""))


def pages():
    """The pages that have code."""
    return [page for page in sorted(GUIDE.rglob("*.md")) if blocks(page.read_text())]


def notebook(page):
    """A page as a value of the format of notebooks, 4.5."""
    text, cells, words, end = page.read_text(), [], [], 0

    def flush():
        joined = "".join(words).strip("\n")
        words.clear()
        if joined:
            start = joined if cells else TITLE.sub(lambda title: f"{title[0]}\n\n{NOTE}", joined, count=1)
            cells.append(_text_cell(start, page))

    def outputs():
        return cells[-1]["outputs"] if cells and not "".join(words).strip() and "outputs" in cells[-1] else None

    drawn = {block.picture for block in blocks(text)}
    for part in PARTS.finditer(text):
        words.append(_plain(text[end : part.start()]))
        end, fence = part.end(), part["fence"]
        if fence == "python":
            flush()
            cells.append({"cell_type": "code", "execution_count": None, "outputs": [], "source": part["code"].rstrip()})
        elif fence in ("text", "text varies") and outputs() is not None:
            outputs().append({"name": "stdout", "output_type": "stream", "text": part["code"]})
        elif part["picture"] in drawn and outputs() is not None:
            shown = {"image/png": _encoded(page.parent / part["picture"])}
            outputs().append({"data": shown, "metadata": {}, "output_type": "display_data"})
        else:
            words.append(part[0].replace("```python skip", "```python", 1))
    words.append(_plain(text[end:]))
    flush()
    stem = name_of(page).replace("/", "-")
    cells = [{"id": f"{stem}-{number}", "metadata": {}} | cell for number, cell in enumerate(cells)]
    about = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": about, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _plain(text):
    """Text without comments, and without links to pages that do not lie beside a notebook."""
    return LINK.sub(lambda found: f"**{found[1]}**" if "`" not in found[1] else found[1], COMMENT.sub("", text))


def _text_cell(text, page):
    """Words, with the pictures that no block draws inside of the cell."""
    attached = {}

    def inside(found):
        file = page.parent / found[2]
        attached[file.name] = {"image/png": _encoded(file)}
        return f"![{found[1]}](attachment:{file.name})"

    source = IMAGE.sub(inside, text)
    return {"cell_type": "markdown", "source": source} | ({"attachments": attached} if attached else {})


def _encoded(file):
    return base64.b64encode(file.read_bytes()).decode()


def address(name):
    """The notebook of a page as a link from that page."""
    return posixpath.relpath(f"{FOLDER}/{name}.ipynb", posixpath.dirname(name) or ".")


def with_link(text, name):
    """A page with the link to its notebook below the title, where it has code."""
    if not blocks(text):
        return text
    line = f'<p class="notebook"><a href="{address(name)}" download>Download this page as a notebook</a></p>'
    return TITLE.sub(lambda title: f"{title[0]}\n\n{line}\n", text, count=1)


def write(out, some=None):
    """Write the notebooks of pages below a folder; their names."""
    names = []
    for page in pages() if some is None else some:
        file = out / FOLDER / f"{name_of(page)}.ipynb"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            json.dumps(notebook(page), indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8"
        )
        names.append(name_of(page))
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder that gets the folder notebooks")
    parser.add_argument("pages", nargs="*", help="names of pages, such as first_fit")
    options = parser.parse_args()
    print(*write(options.out, [GUIDE / f"{name}.md" for name in options.pages] or None))


if __name__ == "__main__":
    main()
