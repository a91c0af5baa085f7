"""Every example in the docs is run, every table that restates code is fresh, every link leads somewhere."""

from __future__ import annotations

import doctest
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.verbs import verb

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the small team of the README was recorded."""
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, ROOT / "examples/record_a_team.py"], cwd=folder, capture_output=True, text=True, check=True
    )
    assert "clean" in done.stdout
    assert (folder / "out/demo.html").exists()
    return folder


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_examples_do_what_the_page_says(page: Path, demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(demo)
    monkeypatch.setenv("COLUMNS", "120")
    checker = doctest.OutputChecker()
    scope: dict[str, Any] = {}
    for block in blocks(page, "(?:python|toml)"):
        if named := re.match(r"# (out/[\w.]+)\n", block):  # a file, whole
            Path(named[1]).write_text(block)
    for block in blocks(page, "python"):
        test = doctest.DocTestParser().get_doctest(block, scope, page.name, str(page), 0)
        runner = doctest.DocTestRunner(checker=checker, verbose=False)
        runner.run(test, clear_globs=False)
        assert not runner.failures
        scope = test.globs
    for block in blocks(page, "console"):
        for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = example.partition("\n")
            if not command.startswith("podium "):
                continue
            done = verb(*shlex.split(command)[1:])
            got = done.stdout
            assert not done.returncode, done.stderr
            assert checker.check_output(expected, got, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE), got


def test_generated_tables_are_fresh() -> None:
    generate = module(ROOT / "docs/generate.py")
    stale = [page.name for page in PAGES if generate.filled(page.read_text()) != page.read_text()]
    assert not stale, f"run python docs/generate.py: {stale}"


def test_figures_in_a_text_are_those_of_the_studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate = module(ROOT / "docs/generate.py")
    monkeypatch.setattr(generate, "DOCS", tmp_path)
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies/x.json").write_text(
        '{"arms": {"a b": [{"r": 0.1, "s": [1, 2]}, {"r": 0.3, "s": [1, 5]}]}}'
    )
    text = "lost <!-- study: x | a b | r | % -->99 %<!-- end -->, <!-- study: x | a b | s[1] | max .1f -->."
    told = text.replace("99 %", "20.0 %").replace("max .1f -->", "max .1f -->5.0<!-- end -->")
    assert generate.filled(text) == generate.filled(told) == told


def test_open_problems_have_their_figures_from_the_studies() -> None:
    """P6 and P13 once told of runs that were no longer there."""
    page = (ROOT / "docs/open-problems.md").read_text()
    for name in ("P3", "P5", "P6", "P11", "P13", "P15"):
        paragraph = page[page.index(f"**{name},") :].split("\n\n")[0]
        assert "<!-- study: " in paragraph
        bare = re.sub(r"<!-- study: .*?<!-- end -->", "", paragraph)
        assert not re.search(r"\d %|[^`\w]\d*\.\d{2}", bare), name


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"
    for target in re.findall(r"`((?:podium|bench|docs|tests|examples)/[\w/.]+)`", page.read_text()):
        assert (ROOT / target).exists(), f"{page.name} names {target}"


def test_every_world_has_its_page_and_picture() -> None:
    from podium.envs.world import worlds

    for name in worlds():
        page = (ROOT / f"docs/envs/{name}.md").read_text()
        assert f"<!-- generated: world {name} -->" in page
        assert f"$ podium envs {name}" in page
        assert (ROOT / f"docs/envs/{name}.svg").read_text().startswith("<svg")


def test_the_picture_is_the_demos(demo: Path) -> None:
    from podium import load
    from podium.view.picture import picture

    assert (ROOT / "docs/demo.svg").read_text() == picture(load(demo / "out/demo-run")) + "\n"
