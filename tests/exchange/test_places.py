from __future__ import annotations

import json
import os
from pathlib import Path

from verbs import verb

from podium.exchange.places import newest_session
from tests.exchange import sessions


def put(path: Path, when: int, session: str = "5e55") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(sessions.simple().data().replace(b"5e55", session.encode()))
    os.utime(path, (when, when))
    return path


def test_the_newest_session_of_this_folder_else_of_this_machine(tmp_path: Path) -> None:
    home, cwd = tmp_path / "home", tmp_path / "my.work"
    assert newest_session(cwd, home, {}) is None
    folder = home / ".claude/projects" / str(cwd).replace("/", "-").replace(".", "-").replace("_", "-")
    rollout = put(home / ".codex/sessions/2026/02/05/rollout-2026-x.jsonl", 50)
    other = put(home / ".claude/projects/-elsewhere/a.jsonl", 40)
    assert newest_session(cwd, home, {}) == rollout
    put(folder / "old.jsonl", 10)
    new = put(folder / "new.jsonl", 20)
    put(folder / "agent-1.jsonl", 60)
    assert newest_session(cwd, home, {}) == new
    assert newest_session(tmp_path, home, {"CODEX_HOME": str(tmp_path / "none")}) == other
    assert newest_session(tmp_path, tmp_path, {"CLAUDE_CONFIG_DIR": str(home / ".claude")}) == other


def test_show_without_a_path(tmp_path: Path) -> None:
    where = {"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": "", "CODEX_HOME": ""}
    answer = verb("show", cwd=tmp_path, **where)
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert "no session of Claude Code or Codex" in answer.stderr
    put(tmp_path / ".claude/projects/-x/a.jsonl", 9, "mine")
    assert json.loads(verb("show", "--json", cwd=tmp_path, **where).stdout)["trace_id"] == "mine"


def test_the_file_beside_a_sub_agents_tells_who_launched_it(tmp_path: Path) -> None:
    from podium.trace import files

    main, own = sessions.with_progress(said=False)
    main.lines = [line for line in main.lines if line["type"] != "progress"]
    beside = tmp_path / "5e55/subagents"
    beside.mkdir(parents=True)
    (tmp_path / "5e55.jsonl").write_bytes(main.data())
    (beside / "agent-af3b.jsonl").write_bytes(own.data())
    (alone,) = files.read(tmp_path)
    assert ["no launch" in f.message for f in alone.findings if f.rule == "log-fault"] == [True]
    (beside / "agent-af3b.meta.json").write_text(json.dumps({"toolUseId": "a1", "agentType": "Explore"}))
    (joined,) = files.read(tmp_path)
    assert [f.rule for f in joined.findings] == ["open-call"]
    assert joined.trace is not None
    assert joined.trace.name_a.strings() == ["person", "main", "af3b"]
