"""Runs the pages of the guide and draws their figures.

    python -m examples.tools.guide_figures [PAGE ...] [--out FOLDER]      # without pages: all that show a figure

A page is Markdown. Its blocks of ```` ```python ```` are run one after the other in one namespace, but for those whose
fence says ``python skip``. A picture below a block is what that block has drawn: ``![words](figures/NAME.png)``.
``tests/test_guide.py`` runs the same blocks and compares what they print with the ```` ```text ```` below them.
"""

import argparse
import contextlib
import io
import re
import traceback
from pathlib import Path
from typing import NamedTuple

GUIDE = Path(__file__).parents[1] / "guide"
FENCE, PICTURE = r"^```(?P<fence>[^\n`]*)\n(?P<code>.*?)^```$", r"^!\[[^\]]*\]\((?P<picture>figures/[^)]+\.png)\)"
PARTS = re.compile(f"{FENCE}|{PICTURE}", re.M | re.S)
NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?")


class Block(NamedTuple):
    """A block of code, the line that it begins in, what it should print (None: anything), and the picture it draws.

    Below ``text varies`` words are compared and numbers are not.
    """

    line: int
    code: str
    printed: str | None = None
    picture: str | None = None
    varies: bool = False


class PageError(AssertionError):
    """A block that fails or prints something else, with its page and line."""


def blocks(text):
    """The blocks of a page that run."""
    found, end_of_code = [], None
    for part in PARTS.finditer(text):
        fence, line = part["fence"], text.count("\n", 0, part.start()) + 2
        if part["picture"]:
            if found:
                found[-1] = found[-1]._replace(picture=part["picture"])
        elif fence == "python":
            found.append(Block(line, part["code"]))
        elif fence in ("text", "text varies") and found and not text[end_of_code : part.start()].strip():
            found[-1] = found[-1]._replace(printed=part["code"], varies=fence != "text")
        end_of_code = part.end() if fence == "python" else part.start()
    return found


def run(page, each=None):
    """Run the blocks of a page, and return their names; ``each(block, printed)`` sees every one that has run."""
    names = {"__name__": page.stem}
    for block in blocks(page.read_text()):
        code = "\n" * (block.line - 1) + block.code  # so that a traceback has the lines of the page
        output = io.StringIO()
        try:
            with contextlib.redirect_stdout(output):
                exec(compile(code, str(page), "exec"), names)
        except Exception as error:
            own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(page)]
            raise PageError(f"{page.name}, line {own[-1].lineno if own else block.line}: {error!r}") from error
        if each is not None:
            each(block, output.getvalue())
    return names


def differs(printed, expected, varies=False):
    """Where a print is not as the page has it, or None: words alike, numbers to 5 % or five of the last digit shown.

    Three dots stand for anything, and spaces count as one. ``varies``: only the words are compared, not the marks
    behind numbers and the lengths of lines.
    """
    if varies:
        printed, expected = (re.sub("-{4,}", "----", re.sub(" !", "", text)) for text in (printed, expected))
    pattern, wanted = [], []
    for piece in re.split(rf"(\.\.\.|{NUMBER.pattern})", " ".join(expected.split())):
        is_number = bool(NUMBER.fullmatch(piece))
        wanted += [piece] if is_number else []
        number = f"({NUMBER.pattern})"
        pattern.append(".*" if piece == "..." else number if is_number else re.escape(piece).replace(r"\ ", r"\s*"))
    match = re.fullmatch("".join(pattern), " ".join(printed.split()), re.S)
    if match is None:
        return f"printed\n{printed}where the page has\n{expected}"
    for found, number in zip(match.groups(), [] if varies else wanted, strict=not varies):
        digits = len(number.split("e")[0].partition(".")[2])
        if abs(float(found) - float(number)) > max(5 * 10.0**-digits * (digits > 0), 0.05 * abs(float(number))):
            return f"printed {found} where the page has {number}:\n{printed}"
    return None


def draw(page, out=GUIDE):
    """Run a page and save what its blocks have drawn, below ``out``; the names of the pictures."""
    import matplotlib.pyplot as plt

    saved = []

    def save(block, _):
        if block.picture:
            plt.gcf().savefig(out / block.picture, dpi=110, pil_kwargs={"optimize": True})
            saved.append(block.picture)
            plt.close("all")

    run(page, save)
    return saved


def with_figures():
    """The pages that show what they draw."""
    return [page for page in sorted(GUIDE.glob("*.md")) if any(block.picture for block in blocks(page.read_text()))]


def main():
    import matplotlib

    matplotlib.use("Agg")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", help="names of pages, such as first_fit")
    parser.add_argument("--out", type=Path, default=GUIDE, help="folder that has the folder figures")
    options = parser.parse_args()
    (options.out / "figures").mkdir(parents=True, exist_ok=True)
    for page in [GUIDE / f"{name}.md" for name in options.pages] or with_figures():
        print(page.name, *draw(page, options.out))


if __name__ == "__main__":
    main()
