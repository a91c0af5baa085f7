"""What the views of the page show, in a real browser: options of decisions, credit at every unit, branches, trainings, live runs.

Needs what `test_browser` needs: `make browser`.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import podium
from podium.graph import units
from podium.trace import Recorder
from podium.trace.columns import Trace
from podium.view.answers import Library
from podium.view.page import file_page
from podium.view.serve import Server
from podium.view.training import board_page
from tests.doors.test_browser import AXE, CHROMIUM, board, settled
from tests.doors.test_browser import browser as browser  # fixtures
from tests.doors.test_browser import opened as opened
from tests.doors.test_browser import tab as tab
from tests.view.conftest import plain_run
from tests.view.conftest import run as run
from tests.view.test_answers import world_runs as world_runs

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: `make browser`")
CURVE = [0.5, 0.25, 0.125]


@contextmanager
def served(library: Library) -> Iterator[Server]:
    server = Server(library)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def training(tmp_path: Path, world_runs: Trace) -> Path:
    """A training that is over, with runs before and after and those of two iterations."""
    folder = tmp_path / "training"
    mix = {"stop": {"share": 1.0, "options": {"go on": 0.25, "stop": 0.75}}}
    lines = [
        {
            "iteration": i,
            "regret": r,
            "score": 1 - r,
            "mix": mix,
            "gradients": {"lead": 1.0, "worker": r},
            "paid": 0.9,
        }
        for i, r in enumerate(CURVE)
    ]
    judged = [{"value": 0.7, "optimum": 0.8, "trivial": 0.5, "regret": 0.125, "share": 1 / 3}]
    for name, trace in {
        "before": world_runs[:1],
        "after": world_runs[1:2],
        "kept/0/0": world_runs[:6],
        "kept/2/0": world_runs[2:6],
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        podium.save(trace, folder / f"{name}.jsonl")
    (folder / "asked.json").write_text('{"world": "costly_search", "method": "grpo", "recipe": {"iterations": 3}}')
    (folder / "iterations.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    (folder / "judged.json").write_bytes(msgspec.json.encode(judged))
    return folder


def test_a_training_shows_curves_and_the_runs_of_any_kept_iteration(tab: Any, training: Path) -> None:
    with served(Library([training])) as server:
        tab.goto(server.address)
        tab.wait_for_selector("body[data-ready=train]", state="attached")
        names = tab.locator(".chartbox figcaption strong").all_text_contents()
        assert names[:4] == ["Regret", "Return", "What it chooses: stop", "Length of the gradient"]
        assert "regret 12.5 %" in tab.get_attribute("svg.chart >> nth=0", "aria-label")
        assert "lead 1worker 0.125" in tab.locator(".values").all_text_contents()[3].replace(
            " lead", "lead"
        ).replace(" worker", "worker")
        tab.focus("svg.chart >> nth=0")
        for _ in range(3):
            tab.keyboard.press("ArrowLeft")
        first = tab.locator(".values").all_text_contents()
        assert "regret 50 %" in first[0]
        assert "iteration 1, click to see its runs" in first[1]
        tab.keyboard.press("ArrowRight")
        assert "regret 25 %" in tab.locator(".values").all_text_contents()[0]
        assert tab.locator("table.kept tr").count() == 4
        assert tab.locator("table.kept tr:has-text('Iteration 1') button").count() == 3  # the first of six
        assert "world 1 0.7" in tab.get_attribute("svg.chart >> nth=-1", "aria-label")
        tab.keyboard.press("Home")
        tab.keyboard.press("Enter")
        tab.wait_for_selector("body[data-ready=run]", state="attached")
        assert "screen=run%2F2" in tab.url
        tab.go_back()
        tab.wait_for_selector("table.kept")
        tab.click("table.kept tr:has-text('Iteration 3') button >> nth=1")
        tab.wait_for_selector("body[data-ready=run]", state="attached")


def test_axe_finds_no_serious_fault_in_trainings_boards_and_on_a_phone(
    browser: Any, tmp_path: Path, training: Path, run: Trace
) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: `make browser`")
    row = {
        "env": "scouts",
        "method": "parl",
        "share_of_gap": 0.3,
        "interval": [0.2, 0.4],
        "regret": 0.02,
        "paid": 0.8,
    }
    pages = {"training": file_page(Library([training])), "board": board_page([row]), "run": file_page([("", run)])}
    faults = []
    for scheme in ("light", "dark"):
        context = browser.new_context(
            color_scheme=scheme,
            bypass_csp=True,
            viewport={"width": 390 if scheme == "dark" else 1280, "height": 844},
        )
        for name, page in pages.items():
            (tmp_path / "page.html").write_text(page, encoding="utf-8")
            tab = context.new_page()
            at = "#screen=train/0" if name == "training" else ""
            tab.goto((tmp_path / "page.html").as_uri() + at)
            tab.wait_for_selector("body[data-ready]", state="attached")
            time.sleep(0.3)
            tab.add_script_tag(path=str(AXE))
            result = tab.evaluate("() => axe.run()")
            faults += [
                (name, v["id"], v["nodes"][0]["html"][:160])
                for v in result["violations"]
                if v["impact"] in ("serious", "critical")
            ]
            assert tab.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
            tab.close()
        context.close()
    assert not faults


def test_a_decision_bears_its_options_and_their_probabilities(
    opened: Callable[..., Any], world_runs: Trace
) -> None:
    one = world_runs[0]
    tab = opened(one)
    for row in np.flatnonzero(one.decision_e >= 0).tolist():
        options = tab.evaluate("(e) => window.podium.screen().run.options(e)", row)
        own = one.event_o == row
        assert [o["name"] for o in options] == [one.label_o[int(i)] for i in np.flatnonzero(own)]
        assert [o["chosen"] for o in options] == [o["name"] == one.chosen_e[row] for o in options]
        logps = one.logp_o[own]
        assert [o["p"] for o in options] == [None if p != p else pytest.approx(np.exp(p), rel=1e-6) for p in logps]


def test_a_file_has_credit_at_every_unit_that_adds_up(opened: Callable[..., Any], world_runs: Trace) -> None:
    tab = opened(*world_runs, at="#screen=run/2&panel=credit&method=dr_mas", methods=["dr_mas", "puppeteer"])
    tab.wait_for_selector(".panel svg.chart")
    offered = [o.strip() for o in tab.locator(".panel select >> nth=1").locator("option").all_text_contents()]
    assert offered[0] == "its own"
    assert set(offered[1:]) <= {unit.replace("_", " ") for unit in units.UNITS}
    assert {"agent", "turn", "orchestrator"} <= set(offered)
    for unit in ("agent", "turn"):
        tab.select_option(".panel select >> nth=1", unit)
        tab.wait_for_selector(f"text=units ({unit}) are paid")
        assert "✓ It adds up." in tab.text_content(".panel figure")
        bars = dict(
            re.findall(r"(credit in all|left over|team reward)([-−\d.e]+)", tab.text_content(".panel figure svg"))
        )
        assert float(bars["left over"]) == 0
        assert float(bars["team reward"]) == pytest.approx(float(world_runs.reward_n["team"][2]), rel=1e-3)
    tab.select_option(".panel select >> nth=2", "puppeteer")
    tab.wait_for_selector("button:text-is('difference')[aria-pressed=true]")
    tab.click("button:text-is('puppeteer')")
    settled(tab)
    assert board(tab, "b.colour.name").startswith("puppeteer")


def test_a_drag_in_the_strips_zooms_and_one_line_goes_through_all(opened: Callable[..., Any], run: Trace) -> None:
    tab = opened(run)
    settled(tab)
    box = tab.locator("canvas.strips").bounding_box()
    x, y = box["x"], box["y"] + 30
    tab.mouse.move(x + 0.25 * box["width"], y)
    assert tab.locator(".cross").is_visible()
    assert "at " in tab.text_content(".under .names")
    before = board(tab, "[b.a, b.b]")
    tab.mouse.down()
    tab.mouse.move(x + 0.5 * box["width"], y)
    tab.mouse.up()
    a, b = board(tab, "[b.a, b.b]")
    assert (b - a) / (before[1] - before[0]) == pytest.approx(0.25, abs=0.01)
    assert a == pytest.approx(before[0] + 0.25 * (before[1] - before[0]), rel=0.05)
    y = box["y"] + box["height"] - 8
    tab.mouse.move(x + 1, y)
    tab.mouse.down()
    tab.mouse.move(x + box["width"] - 1, y)
    tab.mouse.up()
    assert board(tab, "b.b - b.a") > 0.9 * (before[1] - before[0])


def test_workers_and_the_critical_path(opened: Callable[..., Any], run: Trace) -> None:
    tab = opened(run)
    tab.locator("input[type=range]").fill("1")
    assert "with 1 worker the recorded work takes" in tab.text_content("[role=status].status")
    tab.locator("input[type=range]").fill("0")
    assert board(tab, "b.run.mode") == "clock"
    tab.click("button:text-is('Critical path')")
    path = board(tab, "b.run.pathEdges().map((x) => [b.run.columns.src[x], b.run.columns.dst[x]])")
    critical = set(np.flatnonzero(podium.graph.critical_path(run).on_e).tolist())
    assert path
    assert {e for edge in path for e in edge} <= critical
    assert len({dst for _, dst in path}) == len(path) == len(critical) - 1


def test_what_derives_from_outside_is_lit(opened: Callable[..., Any], run: Trace) -> None:
    tab = opened(run, at="#screen=run/0&panel=safety")
    tab.click(".panel >> text=/show the \\d+ events? that derive/")
    shown = board(tab, "[...b.faded].flatMap((f, e) => (f ? [] : [e]))")
    lit = podium.graph.taint(run) | (run.trusted_e == 0)
    assert shown == np.flatnonzero(lit).tolist()
    tab.focus("canvas.lanes")
    tab.keyboard.press("Escape")
    assert board(tab, "b.faded") is None
    tab.click(".panel >> text=/show the/")
    tab.goto(tab.url.replace("panel=safety", f"panel=event&event={shown[-1]}"))
    tab.reload()
    tab.wait_for_selector(".panel >> text=derives from what came from outside")


def test_branches_are_aligned_and_what_changed_is_listed(opened: Callable[..., Any], world_runs: Trace) -> None:
    tab = opened(*world_runs, at="#screen=compare&a=0&b=6")
    tab.wait_for_selector("figure svg[aria-label^='A run and its branches']")
    assert tab.locator("figure svg .pick").count() == 2
    own = tab.evaluate(
        "() => window.podium.screen().boards.map((b) => b.run.n - b.faded.reduce((n, f) => n + f, 0))"
    )
    text = tab.text_content("main")
    assert f"Only in A ({own[0]})" in text
    assert f"Only in B ({own[1]})" in text
    worth = float(world_runs.reward_n["team"][6] - world_runs.reward_n["team"][0])
    assert (f"B has {abs(worth):.4g} {'more' if worth > 0 else 'less'}" if worth else "the same") in text
    tab.click("figure svg .pick >> nth=0")
    tab.wait_for_selector("body[data-ready=run]", state="attached")


def test_runs_are_sorted_and_filtered(opened: Callable[..., Any], world_runs: Trace, run: Trace) -> None:
    tab = opened(*world_runs, run, at="#screen=runs")
    tab.wait_for_selector("[aria-label=Runs] tbody svg")
    head = [text.strip() for text in tab.locator("[aria-label=Runs] thead th").all_text_contents()]
    column = head.index("Events") + 1
    tab.click("[aria-label=Runs] thead >> text=Events")
    events = [int(x) for x in tab.locator(f"[aria-label=Runs] tbody td:nth-child({column})").all_text_contents()]
    assert events == sorted(r.n_events for r in (*world_runs, run))
    assert tab.get_attribute("[aria-label=Runs] thead th[aria-sort]", "aria-sort") == "ascending"
    tab.fill("input[aria-label='Filter the runs']", str(world_runs[0].trace_id_n[0]))
    assert tab.locator("[aria-label=Runs] tbody tr").count() == sum(
        world_runs[0].trace_id_n[0] in (t.trace_id_n[0], t.parent_n[0]) for t in (*world_runs, run)
    )


def test_a_run_that_goes_on_is_followed_where_one_looks(tab: Any, tmp_path: Path) -> None:
    clock = iter(float(i) for i in range(100))
    record = Recorder(tmp_path / "live", clock=lambda: next(clock))
    for _ in range(3):
        record.add("message", "lead", to="ann")
    record.flush()
    with served(Library([tmp_path / "live"])) as server:
        tab.goto(server.address)
        tab.wait_for_selector("text=3 events, 1 agent")
        tab.focus("canvas.lanes")
        tab.keyboard.press("j")
        tab.keyboard.press("j")
        time.sleep(1.2)
        record.add("spawn", "lead", to="ann")
        record.add("return", "ann", to="lead")
        record.flush()
        tab.wait_for_selector("text=5 events, 2 agents")
        assert board(tab, "b.selected") == 1
        assert tab.get_attribute("#tab-event", "aria-selected") == "true"
        (tmp_path / "live").rename(tmp_path / "gone")
        time.sleep(1.5)
        assert board(tab, "b.run.n") == 5  # what was read stays
        (tmp_path / "gone").rename(tmp_path / "live")
        record.add("return", "ann", to="lead")
        record.flush()
        tab.wait_for_selector("text=6 events, 2 agents")


def test_a_notebook_shows_the_page_in_a_frame_that_reaches_nothing(tab: Any, tmp_path: Path, run: Trace) -> None:
    (tmp_path / "notebook.html").write_text(f"<!doctype html><body>{run._repr_html_()}</body>", encoding="utf-8")
    tab.goto((tmp_path / "notebook.html").as_uri())
    tab.wait_for_selector("iframe")
    frame = tab.frames[1]
    frame.wait_for_selector("body[data-painted]", state="attached")
    assert "6 events, 2 agents" in frame.text_content("[role=status].status")
    assert (
        frame.evaluate("() => { try { return String(parent.document.title); } catch { return 'closed'; } }")
        == "closed"
    )
    assert tab.evaluate("() => document.querySelector('iframe').sandbox.value") == "allow-scripts"


def test_every_event_of_a_crowd_can_be_reached(opened: Callable[..., Any]) -> None:
    """Where thousands share a pixel, zooming in and searching lead to each of them."""
    crowd = plain_run(6_000, 2_000)
    tab = opened(crowd)
    for row in (0, 3_333, 5_999):
        tab.fill("#search", f"#{row}")
        tab.wait_for_selector("text=1 event matches")
        tab.click(".panel tbody button.link")
        assert board(tab, "b.selected") == row
        for _ in range(30):
            board(tab, "b.zoom(0.5, b.run.x0[b.selected])")
        place = "{ clientX: b.canvas.getBoundingClientRect().left + b.px(b.run.x0[b.selected]) + 1, clientY: b.canvas.getBoundingClientRect().top + b.middle(b.selected) }"
        assert board(tab, f"b.at({place})") == {"e": row, "many": 1}


def test_several_runs_of_hostile_names_are_text_everywhere(opened: Callable[..., Any], run: Trace) -> None:
    tab = opened(run, plain_run(3), at="#screen=runs")
    tab.evaluate("() => { window.alert = () => { throw new Error('ran'); }; }")
    for view in ("runs", "compare&a=0&b=1", "run/0&panel=list&search=web"):
        tab.goto(tab.url.split("#")[0] + f"#screen={view}")
        tab.reload()
        tab.wait_for_selector("body[data-ready]", state="attached")
        assert tab.locator("img, iframe, object, embed").count() == 0
