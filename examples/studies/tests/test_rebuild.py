"""The tables of the results are those of the rows beside them, and one command makes them again."""

import re
import shutil

import pytest

from examples.studies.tables import rebuild
from examples.tools.tables import path_of, rows_of

PAGES = rebuild.pages()
PAPERS = ("orthogonal", "decoupled_deep", "stein", "additive", "importance_weighted")
VERDICTS = ("holds", "partly", "does not hold", "not measured")
ROWS = [*rebuild.RESULTS.glob("results/*.csv"), *rebuild.RESULTS.glob("studies/*/*.csv")]


def test_tables_of_the_pages_are_those_of_the_rows():
    shown = set()
    for page in PAGES:
        text = page.read_text()
        assert rebuild.rebuilt(text, rebuild.RESULTS) == text, (
            f"{page.name}: run python -m examples.studies.tables.rebuild"
        )
        for match in rebuild.TABLE.finditer(text):
            shown.add(match[2] if match[3] is None else f"{match[2]}, {match[3]}")
            lines = match[4].splitlines()
            assert len(lines) > 2, f"{page.name}: no table below {match[1]}"
            assert all(line.count("|") <= 7 for line in lines), f"{page.name}, {match[1]}: more than six columns"
    assert shown == {*rebuild.TABLES, *rebuild.PRINTED}


def test_pages_say_where_rows_are_of_the_first_version():
    for page in PAGES:
        text = page.read_text()
        shown = {match[2] for match in rebuild.TABLE.finditer(text)}
        old = [n for n in shown for r in rows_of(rebuild.RESULTS, n) if r.get("version", "").startswith("0.1")]
        assert not old or "0.1.0" in text, f"{page.name}: {set(old)}"


def test_every_saved_figure_is_on_a_page():
    """Else it shows runs that nobody speaks of, and nobody looks at it."""
    words = "\n".join(page.read_text() for page in rebuild.PAGES.parent.rglob("*.md"))
    saved = [*rebuild.RESULTS.glob("results/*.png"), *rebuild.RESULTS.glob("studies/*/*.png")]
    assert len(saved) > 20
    assert [figure.name for figure in saved if str(figure.relative_to(rebuild.RESULTS)) not in words] == []


def test_rows_lie_once_beside_their_programs(tmp_path):
    """A file of rows is found wherever it lies, and refused where there are two of it or none."""
    assert path_of(rebuild.RESULTS, "stein_regression.csv").parent.name == "stein"
    assert [path.name for path in ROWS if path_of(rebuild.RESULTS, path.name) != path] == []
    for folder in ("results", "studies/stein"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.csv").touch()
    with pytest.raises(FileNotFoundError, match=r"a.csv must be below .* once, but is 2 times"):
        path_of(tmp_path, "a.csv")
    with pytest.raises(FileNotFoundError, match=r"b.csv must be below .* once, but is 0 times"):
        path_of(tmp_path, "b.csv")


def claims_of(name):
    """Claims of a page of a paper, ``{claim: (verdict, why)}``."""
    text = (rebuild.PAGES / f"{name}.md").read_text()
    claims = re.search(r"^\| claim \| verdict \| why \|\n.*\n((?:\|.*\n)+)", text, re.M)[1].splitlines()
    return {claim: (verdict, why) for claim, verdict, why in (line[2:-2].split(" | ", 2) for line in claims)}


def shown(text):
    """What a reader sees of a page beside tables of rows, commands and pictures."""
    text = re.sub(r"<!-- rows: .* -->\n(?:\|.*\n)*|<!--.*?-->", "", text)
    text = re.sub(r"^    .*$|^!\[.*$", "", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), flags=re.M)
    return re.sub(r"\]\([^)]*\)", "]", text)


def test_every_claim_has_one_of_four_verdicts_and_the_index_counts_them():
    """Verdicts alone, at most 40 words why, a price where there is none, and no other count on the index.

    Claims of our own count apart from those of the paper.
    """
    index = (rebuild.PAGES / "index.md").read_text()
    for name in PAPERS:
        claims = claims_of(name)
        verdicts = [verdict for verdict, _ in claims.values()]
        assert set(verdicts) <= set(VERDICTS), name
        assert all("core hour" in why for verdict, why in claims.values() if verdict == "not measured"), name
        assert [claim for claim, (_, why) in claims.items() if len(shown(why).split()) > 40] == [], name
        ours = [verdict for claim, (verdict, _) in claims.items() if claim.endswith("(ours)")]
        counts = " | ".join(str(verdicts.count(word) - ours.count(word)) for word in VERDICTS)
        counts += f" | {ours.count('holds')} of {len(ours)} |" if ours else " | none |"
        assert f"]({name}.md) | {counts}" in index, f"{name}: {counts}"
        assert "\n## The settings beside the paper's\n" in (rebuild.PAGES / f"{name}.md").read_text()


def test_the_list_of_changed_verdicts_has_those_of_the_pages():
    text = (rebuild.RESULTS / "results" / "papers.md").read_text()
    changed = re.findall(r"^\| \[(\w+)\]\([^)]*\) \| (.*?) \| (.*?) \| (.*?) \|", text, re.M)
    assert len(changed) > 30
    for name, claim, before, now in changed:
        assert claims_of(name)[claim][0] == now, f"{name}: {claim}"
        assert before in (*VERDICTS, "no row")


def test_the_readme_sums_up_the_verdicts():
    """ "mostly" where more than half of the paper's claims hold, "partly" elsewhere."""
    readme = (rebuild.RESULTS.parent / "README.md").read_text()
    for name in PAPERS:
        verdicts = [verdict for claim, (verdict, _) in claims_of(name).items() if not claim.endswith("(ours)")]
        word = "mostly" if 2 * verdicts.count("holds") > len(verdicts) else "partly"
        assert f"[{word}](examples/guide/papers/{name}.md)" in readme, name


@pytest.mark.parametrize("page", sorted(rebuild.PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_pages_of_results_are_short(page):
    """Words as `wc` counts them, numbers among them, on pages of the papers; on the others words alone."""
    text = shown(page.read_text())
    of_paper = page.stem in (*PAPERS, "index")
    count = len(re.sub(r"\||-{3,}", " ", text).split() if of_paper else re.findall(r"\b[^\W\d_][\w'-]*", text))
    assert count <= 1200, f"{page.name}: {count} words"


@pytest.mark.long
@pytest.mark.experiments("examples/studies/tables")
def test_the_command_writes_tables_and_figures(tmp_path, monkeypatch, capsys):
    for path in ROWS:
        shutil.copy(path, tmp_path)
    for page in PAGES:  # two of them have one name, in folders of their own
        own = tmp_path / page.relative_to(rebuild.RESULTS)
        own.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, own)
    folders = ["--out", str(tmp_path), "--pages", str(tmp_path), "--figures", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["rebuild", *folders])
    rebuild.main()
    printed = capsys.readouterr().out
    assert printed.count(" unchanged\n") == len(PAGES)
    assert (
        "figures stein_regression.png, stein_classification.png, gam_interactions.png, additive_coverage.png" in printed
    )
    assert (tmp_path / "long_runs_depth.png").stat().st_size > 10_000
    assert (tmp_path / "long_runs.md").read_text() == path_of(rebuild.RESULTS, "long_runs.md").read_text()
    assert (tmp_path / "stein_classification.png").stat().st_size > 10_000
