"""The page in a real browser: every view, by mouse and keyboard, in light and dark, on a phone; and what a trace must not be able to do.

Needs Debian's Chromium, playwright and axe-core: `make browser`. Without them these tests are skipped and say so.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import podium
from podium import graph
from podium.harness.forest import shared
from podium.trace.columns import Trace, concat
from podium.view.answers import Library
from podium.view.page import file_page
from podium.view.serve import Server
from podium.view.training import board_page
from tests.verbs import verb
from tests.view.conftest import HOSTILE, plain_run
from tests.view.conftest import run as run  # a fixture
from tests.view.test_answers import world_runs as world_runs

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: `make browser`")
ROOT = Path(__file__).parents[2]
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
AXE = ROOT / ".venv/axe/node_modules/axe-core/axe.min.js"
LOGS = ROOT.parent / "shared/data/logs/claude_code"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: `make browser`")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """A page that fails the test if a script fails or anything but the page itself is asked for."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "request",
        lambda r: faults.append(r.url) if not r.url.startswith(("file:", "http://127.0.0.1", "data:")) else None,
    )
    page.faults = faults
    yield page
    context.close()
    assert not faults


@pytest.fixture
def opened(tab: Any, tmp_path: Path) -> Callable[..., Any]:
    """Opens a page of some runs from disk, at a view."""

    def go(*runs: Trace, at: str = "", **how: Any) -> Any:
        file = tmp_path / "page.html"
        if not file.exists():
            file.write_text(file_page([("", run) for run in runs], **how), encoding="utf-8")
        tab.goto("about:blank")
        tab.goto(file.as_uri() + at)
        tab.wait_for_selector("body[data-ready]", state="attached")
        return tab

    return go


def board(tab: Any, expression: str) -> Any:
    return tab.evaluate(f"() => {{ const b = window.podium.screen().lanes; return {expression}; }}")


def settled(tab: Any) -> None:
    tab.evaluate("() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))")


def test_a_run_opens_zooms_folds_and_selects(opened: Callable[..., Any], run: Trace) -> None:
    tab = opened(run)
    assert "6 events, 2 agents" in tab.text_content("[role=status].status")
    before = board(tab, "b.b - b.a")
    tab.click("button[aria-label='Zoom in']")
    assert board(tab, "b.b - b.a") == pytest.approx(before / 2)
    tab.click("text=All")
    tab.hover("canvas.lanes")
    tab.mouse.wheel(0, -240)
    assert board(tab, "b.b - b.a") < before
    assert tab.locator("[role=treeitem]").count() == 2
    tab.click("button[aria-label='fold lead']")
    settled(tab)
    assert tab.locator("[role=treeitem]").count() == 1
    tab.click("button[aria-label='unfold lead']")
    tab.keyboard.press("0")
    place = board(
        tab,
        "[b.canvas.getBoundingClientRect().left + b.px(b.run.x0[2]) + 3, b.canvas.getBoundingClientRect().top + b.middle(2)]",
    )
    tab.mouse.click(*place)
    tab.wait_for_selector(".panel h2")
    assert "tool call web" in tab.text_content(".panel h2")
    assert "event=2" in tab.url


def test_the_keyboard_is_enough(opened: Callable[..., Any], run: Trace) -> None:
    tab = opened(run)
    tab.focus("canvas.lanes")
    for key in ("j", "j", "+", "-", "ArrowLeft", "ArrowRight", "ArrowUp", "End", "Home", "c"):
        tab.keyboard.press(key)
    assert board(tab, "b.selected") >= 0
    assert board(tab, "b.critical") is True
    tab.keyboard.press("Escape")
    assert board(tab, "b.selected") == -1
    tab.keyboard.press("?")
    assert tab.locator("#help").is_visible()
    tab.keyboard.press("Escape")
    tab.keyboard.press("/")
    tab.keyboard.type("tool:web")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("text=2 events match")
    assert board(tab, "b.faded.reduce((n, f) => n + f, 0)") == 4  # what does not match stands back
    tab.click("#tab-event")
    tab.keyboard.press("ArrowRight")
    assert tab.get_attribute("#tab-list", "aria-selected") == "true"


@pytest.mark.parametrize("panel", ["event", "list", "summary", "credit", "safety"])
def test_every_panel_has_an_address(opened: Callable[..., Any], run: Trace, panel: str) -> None:
    tab = opened(run, at=f"#screen=run/0&panel={panel}&event=3&method=puppeteer", methods=["puppeteer"])
    tab.wait_for_selector(f"#tab-{panel}[aria-selected=true]")
    time.sleep(0.4)
    told = tab.text_content(".panel")
    assert {
        "event": "Causes",
        "list": "6 events",
        "summary": "lead",
        "credit": "puppeteer",
        "safety": "1 event brought",
    }[panel] in told
    address = tab.url
    tab.goto("about:blank")
    tab.goto(address)
    tab.wait_for_selector(f"#tab-{panel}[aria-selected=true]")
    assert board(tab, "b.selected") == 3


def test_compare_shows_where_a_branch_left(opened: Callable[..., Any], world_runs: Trace) -> None:
    tab = opened(*world_runs, at="#screen=compare&a=0&b=6")
    assert "branched from" in tab.text_content("main")
    assert "Reward of the team" in tab.text_content("main")
    tab.click("nav >> text=Runs")
    tab.wait_for_selector("body[data-ready=runs]")
    assert tab.locator("[aria-label=Runs] tbody tr").count() == 7
    tab.click("[aria-label=Runs] thead >> text=Events")
    tab.click("[aria-label=Runs] tbody tr:first-child button")
    tab.wait_for_selector("body[data-ready=run]")


def test_dark_is_remembered_and_a_phone_is_wide_enough(browser: Any, tmp_path: Path, run: Trace) -> None:
    file = tmp_path / "page.html"
    file.write_text(file_page([("", run)]), encoding="utf-8")
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark", has_touch=True)
    tab = context.new_page()
    tab.goto(file.as_uri())
    tab.wait_for_selector("body[data-painted]", state="attached")
    assert tab.evaluate("() => document.documentElement.scrollWidth") <= 390
    dark = tab.evaluate("() => getComputedStyle(document.body).backgroundColor")
    tab.click("button[aria-label='Light or dark']")
    assert tab.evaluate("() => getComputedStyle(document.body).backgroundColor") != dark
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(
    browser: Any, tmp_path: Path, world_runs: Trace, run: Trace, scheme: str
) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: `make browser`")
    file = tmp_path / "page.html"
    file.write_text(file_page([("", r) for r in concat([world_runs, run])]), encoding="utf-8")
    context = browser.new_context(color_scheme=scheme, bypass_csp=True)  # axe is a script of its own
    found = []
    for view in (
        "runs",
        "compare",
        "compare&a=0&b=6",
        *(f"run/7&panel={p}&event=2" for p in ("event", "list", "summary", "credit", "safety")),
    ):
        tab = context.new_page()
        tab.goto(f"{file.as_uri()}#screen={view}")
        tab.wait_for_selector("body[data-ready]", state="attached")
        time.sleep(0.3)
        tab.add_script_tag(path=str(AXE))
        told = tab.evaluate("() => axe.run()")
        found += [
            (view, v["id"], v["nodes"][0]["html"][:160])
            for v in told["violations"]
            if v["impact"] in ("serious", "critical")
        ]
        tab.close()
    context.close()
    assert not found


def test_nothing_in_a_trace_runs_or_fetches(opened: Callable[..., Any], run: Trace) -> None:
    tab = opened(run, at="#screen=run/0&event=3&panel=event")
    tab.wait_for_selector(".panel h2")
    tab.evaluate("() => { window.alert = () => { throw new Error('ran'); }; }")
    for panel in ("event", "list", "summary", "credit", "safety"):
        tab.click(f"#tab-{panel}")
        time.sleep(0.2)
    assert HOSTILE in tab.evaluate("() => window.podium.screen().run.header.agents.join()")
    assert tab.locator("img, iframe, object, embed, link").count() == 0
    blocked = tab.evaluate("() => fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'blocked')")
    assert blocked == "blocked"
    tab.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s); }"
    )
    assert tab.evaluate("() => window.ran") is None


@pytest.mark.parametrize(
    ("trace", "says"),
    [
        (plain_run(0), "nothing to draw"),
        (plain_run(5, times=False), "no event says when it happened"),
        (plain_run(1), "1 event, 1 agent"),
        (plain_run(5_000, 5_000), "5,000 agents"),
    ],
    ids=["empty", "no times", "one", "5,000 lanes"],
)
def test_odd_runs_are_shown(opened: Callable[..., Any], trace: Trace, says: str) -> None:
    tab = opened(trace)
    assert says in tab.text_content("[role=status].status")
    if trace.n_events > 1:
        assert board(tab, "b.run.lanes.reduce((n, l) => n + l.n, 0)") == trace.n_events


def test_three_days_with_five_minutes_of_work(opened: Callable[..., Any]) -> None:
    trace = plain_run(300)
    late = np.where(np.arange(300) < 150, trace.t_e, trace.t_e + 3 * 86_400)
    days = Trace.of(
        **{
            n: getattr(trace, n)
            for n in ("trace_id_n", "rollout_a", "name_a", "rollout_e", "id_e", "type_e", "agent_e")
        },
        t_e=late,
        end_e=late + 1,
    )
    tab = opened(days)
    assert "idle time is cut short" in tab.text_content("[role=status].status")
    assert board(tab, "b.run.high - b.run.low") < 1_000
    assert board(tab, "b.run.clock(b.run.high)") == pytest.approx(float(np.nanmax(days.end_e)))
    tab.select_option("select >> nth=0", "clock")
    assert board(tab, "b.run.high - b.run.low") > 2 * 86_400


def test_the_served_page_follows_what_is_on_disk(tab: Any, tmp_path: Path, run: Trace) -> None:
    podium.save(run, tmp_path / "a.jsonl")
    server = Server(Library([tmp_path]))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        tab.goto(server.address)
        tab.wait_for_selector("body[data-ready=run]", state="attached")
        tab.click("#tab-credit")
        tab.select_option(".panel select >> nth=0", "puppeteer")
        tab.wait_for_selector(".panel svg.chart")
        tab.select_option(".panel select >> nth=1", "team")
        tab.wait_for_selector("text=units (team) are paid")
        time.sleep(1.2)
        podium.save(concat([run, plain_run(3)]), tmp_path / "b.jsonl")
        tab.wait_for_selector("#live:has-text('updated')", timeout=10_000)
        tab.wait_for_selector("nav >> text=Runs")
    finally:
        server.shutdown()
        server.server_close()


def test_another_page_in_the_same_browser_reads_nothing(browser: Any, run: Trace) -> None:
    """A page of another origin knows the token, and still gets no answer; neither does one that rebinds the host's name."""
    ours, theirs = Server(Library((), [("", run)])), Server(Library((), [("", plain_run(1))]))
    for server in (ours, theirs):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    context = browser.new_context(bypass_csp=True)  # as a hostile page would have no policy of ours
    try:
        tab = context.new_page()
        tab.goto(theirs.address)
        tab.wait_for_selector("body[data-ready]", state="attached")
        asked = """async ([address, headers]) => {
          try { return (await (await fetch(address, { headers })).text()).slice(0, 40); } catch { return 'refused'; }
        }"""
        address = f"http://127.0.0.1:{ours.server_port}/ask/index"
        assert tab.evaluate(asked, [address, {"X-Podium-Token": ours.token}]) == "refused"
        assert tab.evaluate(asked, [f"{address}?token={ours.token}", {}]) == "refused"
        own = f"http://127.0.0.1:{theirs.server_port}"
        for path in ("/ask/../../etc/passwd", "/ask/%2e%2e%2fetc%2fpasswd", "/etc/passwd"):
            told = tab.evaluate(asked, [own + path, {"X-Podium-Token": theirs.token}])
            assert told.startswith('{"error"')
        framed = tab.evaluate(
            """(address) => new Promise((done) => {
          const frame = document.createElement('iframe');
          frame.onload = () => { try { done(frame.contentDocument ? 'seen' : 'opaque'); } catch { done('opaque'); } };
          frame.src = address; document.body.append(frame);
        })""",
            ours.address,
        )
        assert framed == "opaque"
    finally:
        context.close()
        for server in (ours, theirs):
            server.shutdown()
            server.server_close()


def test_an_agent_has_facts(opened: Callable[..., Any], run: Trace) -> None:
    tab = opened(run)
    tab.click("[role=treeitem] >> text=lead")
    tab.wait_for_selector(".panel h2:has-text('lead')")
    assert "Busy" in tab.text_content(".panel")


def test_units_and_credit_of_an_event_are_there(opened: Callable[..., Any], run: Trace) -> None:
    tab = opened(run, at="#screen=run/0&panel=event&event=2", methods=["puppeteer"])
    tab.wait_for_selector(".panel >> text=Part of")
    assert "puppeteer" in tab.text_content(".panel [aria-label='Credit by method']")
    tab.click(".panel >> button:text-is('turn')")
    tab.wait_for_selector(".panel h2:has-text('Turn of')")
    place = graph.units.place(run, "turn")
    rows = np.flatnonzero(place == place[2])
    assert tab.locator(".panel ul.links li").count() == len(rows)
    tokens = np.nansum([run.tokens_in_e[rows], run.tokens_out_e[rows]])
    assert f"Tokens{tokens:.0f}" in tab.text_content(".panel table.facts")


def test_pointing_at_a_decision_shows_its_options(opened: Callable[..., Any], run: Trace) -> None:
    tab = opened(run)
    x, y = board(
        tab,
        "[b.canvas.getBoundingClientRect().left + b.px(b.run.x0[0]), b.canvas.getBoundingClientRect().top + b.middle(0)]",
    )
    tab.mouse.move(x, y)
    tab.wait_for_selector(".tip .more")
    tip = tab.text_content(".tip")
    assert "decision 1" in tip
    assert "▸ 1" in tip
    row = int(np.flatnonzero(run.tool_e.codes >= 0)[1])
    x, y = board(
        tab,
        f"[b.canvas.getBoundingClientRect().left + b.px(b.run.x0[{row}]), b.canvas.getBoundingClientRect().top + b.middle({row})]",
    )
    tab.mouse.move(x, y)
    tab.wait_for_selector(".tip .more")
    assert HOSTILE in tab.text_content(".tip .more")


def test_what_two_runs_share_stands_back(opened: Callable[..., Any], world_runs: Trace) -> None:
    tab = opened(*world_runs, at="#screen=compare&a=0&b=6")
    faded = tab.evaluate("() => window.podium.screen().boards.map((b) => b.faded.reduce((n, f) => n + f, 0))")
    branch = shared(world_runs[0], world_runs[6])
    assert faded == [int((branch >= 0).sum())] * 2
    assert "Another option was taken: stop." in tab.text_content("main")


def test_legends_keys_and_help_say_what_is_shown(opened: Callable[..., Any], run: Trace) -> None:
    tab = opened(run)
    for colour, entry in {"time": "the tool's time", "tool": "web", "safety": "came from outside"}.items():
        tab.select_option("select >> nth=1", colour)
        assert entry in tab.text_content(".legend")
    tab.focus("canvas.lanes")
    tab.keyboard.press("5")
    assert tab.get_attribute("#tab-safety", "aria-selected") == "true"
    tab.wait_for_selector(".panel >> text=Permissions")
    tab.keyboard.press("b")
    assert not tab.locator(".dock").is_visible()
    tab.keyboard.press("b")
    tab.keyboard.press("?")
    assert "Each line is one agent" in tab.text_content("#help")


def test_a_training_that_goes_on_is_followed(tab: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "asked.json").write_text('{"world": "scouts", "iterations": 3}')
    line = (
        '{{"iteration": {}, "regret": {}, "score": 0.5, "mix": {{}}, "gradients": {{"lead": 1.0}}, "paid": 0.9}}\n'
    )
    (folder / "iterations.jsonl").write_text(line.format(0, 0.5))
    server = Server(Library([folder]))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        tab.goto(server.address)
        tab.wait_for_selector("text=Still going: 1 iteration of 3 so far.")
        time.sleep(1.2)
        with (folder / "iterations.jsonl").open("a") as file:
            file.write(line.format(1, 0.25) + '{"iteration": 2, "reg')
        tab.wait_for_selector("text=Still going: 2 iterations of 3 so far.")
        assert "regret 25 %" in tab.get_attribute("svg.chart >> nth=0", "aria-label")
        assert tab.locator("svg.chart").count() == 4
    finally:
        server.shutdown()
        server.server_close()


def test_a_board_shows_intervals(tab: Any, tmp_path: Path) -> None:
    row = {
        "env": "scouts",
        "method": "parl",
        "share_of_gap": 0.3,
        "interval": [0.2, 0.4],
        "regret": 0.02,
        "paid": 0.8,
        "seeds": 3,
    }
    (tmp_path / "board.html").write_text(board_page([row]), encoding="utf-8")
    tab.goto((tmp_path / "board.html").as_uri())
    tab.wait_for_selector("svg.chart")
    assert tab.get_attribute("svg.chart", "aria-label") == "scouts: parl 30 %"
    cell, *row = (cell.strip() for cell in tab.locator("main td").all_text_contents())
    assert cell == "30 % ★20 % to 40 %80 % paid"
    assert row == [
        "scouts",
        "parl",
        "30 %",
        "20 % to 40 %",
        "2 %",
        "80 %",
        "3",
    ]


@pytest.fixture(scope="module")
def ten_files(tmp_path_factory: pytest.TempPathFactory, world_runs: Trace, run: Trace) -> list[Path]:
    """Ten runs on disk; six of them are real logs, where these are there."""
    folder = tmp_path_factory.mktemp("ten")
    logs = sorted(LOGS.glob("*.jsonl.xz"))[:6]
    runs = [run, *(world_runs[i] for i in range(3)), *([] if logs else [plain_run(n, 3) for n in range(1, 7)])]
    for number, trace in enumerate(runs):
        podium.save(trace, folder / f"{number}.jsonl")
    return [*sorted(folder.iterdir()), *logs]


PAYING = ("puppeteer", "dr_mas")
OWN_CREDIT = """async (method) => {
  const { columns } = await window.podium.ask("credit", { run: 0, method, unit: "own" });
  return Array.from(columns.row, (row, i) => [row, Number.isNaN(columns.value[i]) ? null : columns.value[i]]);
}"""
OWN_FIGURES = """() => {
  const { run } = window.podium.screen();
  const counts = {};
  for (let e = 0; e < run.n; e++) counts[run.type(e)] = (counts[run.type(e)] || 0) + 1;
  run.setTimes("clock");
  const { tokens, money, level } = run.totals();
  const busy = level.reduce((a, b) => Math.max(a, b), 0);
  const last = (sums) => (sums ? sums[sums.length - 1] : null);
  return { counts, busy, tokens: last(tokens) || 0, money: last(money), makespan: [1, 2, 4].map((k) => run.schedule(k).makespan) };
}"""


def test_figures_on_the_page_equal_those_of_json(browser: Any, tmp_path: Path, ten_files: list[Path]) -> None:
    """What the panels show is what `--json` prints; what the page computes itself is what the package computes."""
    context = browser.new_context()
    plain = lambda *words: msgspec.json.decode(verb(*words, "--json").stdout)  # noqa: E731
    payable = set()
    for file in ten_files:
        library = Library([file], content=True)
        page = tmp_path / "page.html"
        page.write_text(file_page(library, methods=PAYING), encoding="utf-8")
        tab = context.new_page()
        tab.goto(page.as_uri())
        tab.wait_for_selector("body[data-painted]", state="attached")
        answers = {
            q: tab.evaluate("(q) => window.podium.ask(q, { run: 0 })", q) for q in ("summary", "metrics", "audit")
        }
        shown = plain("show", file)
        assert answers["summary"]["facts"] == shown
        assert answers["metrics"] == plain("metrics", file)["metrics"]
        audited = plain("audit", file)
        for one in (*audited["found"], *audited["observed"]):
            for suspect in one["suspects"]:
                del suspect["file"]  # of which a page says its folder and name elsewhere
        assert {k: answers["audit"][k] for k in ("found", "observed", "cannot_tell")} == {
            k: audited[k] for k in ("found", "observed", "cannot_tell")
        }
        for method in PAYING:
            paid = verb("credit", file, "--method", method, "--json")
            if paid.returncode == 0:
                credits = {one["row"]: one["credit"] for one in msgspec.json.decode(paid.stdout)["column"]}
                if any(credit is not None for credit in credits.values()):
                    assert dict(tab.evaluate(OWN_CREDIT, method)) == credits
                    payable.add(method)
        tab.wait_for_selector(".panel pre.screen", state="attached")
        assert tab.text_content(".panel pre.screen") == "\n".join(answers["summary"]["lines"])
        mine = tab.evaluate(OWN_FIGURES)
        assert mine["counts"] == {k: n for k, n in shown["events"].items() if n}
        trace = library.runs[0][1]
        for k, makespan in zip((1, 2, 4), mine["makespan"], strict=True):
            assert makespan == pytest.approx(np.nan_to_num(graph.with_workers(trace, k).time_n[0]), rel=1e-9)
        timed = ~np.isnan(trace.t_e)
        columns = (trace.tokens_in_e, trace.tokens_out_e, trace.cache_read_e, trace.cache_write_e)
        assert mine["tokens"] == pytest.approx(sum(np.nansum(c[timed]) for c in columns), rel=1e-6)
        if np.isnan(trace.cost_e).all():
            priced = shown["spending"]["usd"]
            assert mine["money"] == (priced if priced is None else pytest.approx(priced, rel=1e-5))
        if shown["clock"]["most_at_once"]:
            assert mine["busy"] == shown["clock"]["most_at_once"]
        tab.close()
    context.close()
    assert payable == set(PAYING)
