"""Settings of the documentation: ``pip install -e ".[docs]" && sphinx-build -W examples/guide OUT``."""

import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective
from sphinx.util.logging import getLogger

import numpyro_gp

sys.path.insert(0, str(Path(__file__).parents[2]))  # where `examples` lies, whichever folder Sphinx runs in
from examples.tools import notebooks

sys.path.pop(0)

project = "numpyro_gp"
author = "the numpyro_gp developers"
release = version = numpyro_gp.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "numpydoc"]

html_theme = "furo"
html_title = f"numpyro_gp {release}"
html_static_path, html_css_files = ["static"], ["pages.css"]
html_show_copyright = False
html_show_sourcelink = False
highlight_language = "none"  # formulas of the guide stand in fences without a language
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
# Classes whose methods stand in several files, and the base beyond which they are another's.
BASES = {"Posterior": "object", "SVGD": "SteinHooks", "AutoGP": "AutoGuide"}
numpydoc_class_members_toctree = False


class Api(SphinxDirective):
    """A module's docstring, a table of the names listed below it, and the docstring of each.

    A value has no docstring: it is listed with its sentence, as ``NAME: what it is``.
    """

    has_content = True
    required_arguments = 1

    def run(self) -> list[Any]:
        """The nodes of the page."""
        module = self.arguments[0]
        listed = dict((line.partition(": ")[0].strip(), line.partition(": ")[2]) for line in self.content)
        return self.parse_text_to_nodes("\n".join(self.page(module, listed)), allow_section_headings=True)

    def page(self, module: str, names: dict[str, str]) -> Iterator[str]:
        """The page as reStructuredText."""
        if module != "numpyro_gp":
            yield from (f".. automodule:: {module}", "   :no-members:", "")
        yield from (f".. currentmodule:: {module}", "", ".. list-table::", "   :widths: auto", "")
        values = {name: getattr(import_module(module), name) for name in names}
        twice = {name for name in names if module != "numpyro_gp" and getattr(numpyro_gp, name, None) is values[name]}
        for name, value in values.items():
            where = "numpyro_gp" if name in twice else module
            yield from (f"   * - `~{where}.{name}`", f"     - {names[name] or summary(value)}")
        for name, value in values.items():
            if name in twice:  # explained where the whole package's names are
                continue
            if callable(value):
                kind, options = ("class", ["   :members:"]) if inspect.isclass(value) else ("function", [])
                options += [f"   :inherited-members: {BASES[name]}"] if name in BASES else []
                options += ["   :special-members: __call__"] * ("__call__" in vars(value) or name == "AutoGP")
                yield from ("", f".. auto{kind}:: {name}", *options)
            else:
                yield from ("", f".. data:: {name}", f"   :value: {value!r}", "", f"   {names[name]}")


def summary(value: object) -> str:
    """The first paragraph of a docstring, on one line."""
    return to_formulas(" ".join((inspect.getdoc(value) or "").split("\n\n")[0].split()))


def to_formulas(text: str) -> str:
    """A docstring's "mathematics.md section 4.2" as a link to the page of formulas, where the guide has it."""
    has_page = (Path(__file__).parent / "mathematics.md").exists()
    return re.sub(r"mathematics\.md (section [\d.]*\d)", r":doc:`\1 </mathematics>`", text) if has_page else text


def with_links(*told: Any) -> None:
    """The same in the lines of a whole docstring."""
    told[-1][:] = [to_formulas(line) for line in told[-1]]


def skipped(*told: Any) -> bool | None:
    """Leave out the fields of a named tuple, which its own docstring explains."""
    return True if str(getattr(told[3], "__doc__", "")).startswith("Alias for field number") else None


def found_by_its_end(app: Sphinx, env: BuildEnvironment, node: Any, contnode: Any) -> Any:
    """Names as docstrings write them, `ngp.diagnose.sbc` or `Posterior.predict`, where only one name ends so."""
    if node.get("refdomain") != "py":
        return None
    domain, target = env.domains["py"], node["reftarget"].removeprefix("ngp.")
    found = [name for name, entry in domain.objects.items() if f".{name}".endswith(f".{target}") and not entry.aliased]
    if len(found) != 1:
        return None
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", found[0], node, contnode)


def with_notebook(app: Sphinx, name: str, source: list[str]) -> None:
    """The link to the notebook of a page, below its title."""
    if app.builder.format == "html":
        source[0] = notebooks.with_link(source[0], name)


def write_notebooks(app: Sphinx, error: Exception | None) -> None:
    """The notebooks, beside the built pages; a page whose link does not lead to its own is a warning."""
    if error is not None or app.builder.format != "html":
        return
    for name in notebooks.write(Path(app.outdir)):
        built = Path(app.outdir, f"{name}.html")
        targets = re.findall(r'<p class="notebook"><a href="([^"]+)" download', built.read_text(encoding="utf-8"))
        own = Path(app.outdir, notebooks.FOLDER, f"{name}.ipynb")
        if [(built.parent / one).resolve() for one in targets] != [own.resolve()]:
            getLogger(__name__).warning("%s has no link to its notebook", name)


def setup(app: Sphinx) -> None:
    """The directive and the rules above."""
    app.add_directive("api", Api)
    app.connect("autodoc-skip-member", skipped)
    app.connect("autodoc-process-docstring", with_links)
    app.connect("missing-reference", found_by_its_end)
    app.connect("source-read", with_notebook)
    app.connect("build-finished", write_notebooks)
