"""Settings of the documentation: ``pip install -e ".[docs]" && sphinx-build -W examples/guide OUT``."""

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import numpyro_gp

project = "numpyro_gp"
author = "the numpyro_gp developers"
release = version = numpyro_gp.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "numpydoc"]

html_theme = "furo"
html_title = f"numpyro_gp {release}"
html_show_copyright = False
html_show_sourcelink = False
pygments_style = "friendly"
pygments_dark_style = "monokai"

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

default_role = "py:obj"  # single backticks in docstrings are names
add_module_names = False
toc_object_entries_show_parents = "hide"
autodoc_inherit_docstrings = False  # a method that means what its base class says is explained there
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "none"  # types and shapes stand in the Parameters
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False


class Api(SphinxDirective):
    """A module's docstring, a table of the names listed below it, and the docstring of each."""

    has_content = True
    required_arguments = 1

    def run(self) -> list[Any]:
        """The nodes of the page."""
        module = self.arguments[0]
        lines = [*self.page(module, [name for line in self.content for name in line.split()])]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True) if lines else []

    def page(self, module: str, names: list[str]) -> Iterator[str]:
        """The page as reStructuredText."""
        if module != "numpyro_gp":
            yield from (f".. automodule:: {module}", "   :no-members:", "")
        yield from (f".. currentmodule:: {module}", "", ".. list-table::", "   :widths: auto", "")
        values = {name: getattr(import_module(module), name) for name in names}
        twice = {name for name in names if module != "numpyro_gp" and getattr(numpyro_gp, name, None) is values[name]}
        for name, value in values.items():
            where = "numpyro_gp" if name in twice else module
            yield from (f"   * - `~{where}.{name}`", f"     - {summary(value)}")
        for name, value in values.items():
            if name in twice:  # explained where the whole package's names are
                continue
            kind = "class" if inspect.isclass(value) else "function" if callable(value) else "data"
            yield from ("", f".. auto{kind}:: {name}", *(["   :members:"] if kind == "class" else []))


def summary(value: object) -> str:
    """The first paragraph of a docstring, on one line; nothing for a value, whose docstring is that of its class."""
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split()) if callable(value) else ""


def skipped(*told: Any) -> bool | None:
    """Leave out the fields of a named tuple, which its own docstring explains."""
    return True if str(getattr(told[3], "__doc__", "")).startswith("Alias for field number") else None


def setup(app: Sphinx) -> None:
    """The directive and the rule above."""
    app.add_directive("api", Api)
    app.connect("autodoc-skip-member", skipped)
