"""What ran one after the other and could have run side by side, and what that would have saved.

Two kinds of it are looked for. *Reads*: turns in a row of one agent that each make one call, and that call only
reads. *Sub-agents*: agents that one agent launched for one task, each after the one before it had returned.

The later of two waits for the earlier if its input has a word of its own (a name of a file, an identifier, a
number) that is in what the earlier gave back. Without such a word, they are taken to be independent: this is
inferred, and needs the content. The savings are an upper bound: the model time of all turns but the first, and all
of the calls but the longest,

    reads       Σ_{i>1} turn_i + Σ_i call_i - max_i call_i
    sub-agents  Σ_i agent_i - max_i agent_i

In money, what the later turns paid to read the context again from the cache is saved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

import msgspec
import numpy as np
from msgspec import Struct

from podium.view.columns import RETURN, SPAWN, RunColumns, content_of, marks, strings, text_of

__all__ = ["Apart", "only_reads", "ran_apart"]

READS = frozenset(
    "Read Grep Glob LS NotebookRead WebFetch WebSearch ToolSearch web_search web_fetch read_file list_dir "
    "list_directory grep_search file_search codebase_search search_files view_image".split()
)
SHELLS = frozenset("Bash PowerShell exec_command shell local_shell shell_command exec run_command".split())
COMMANDS = frozenset("cat head tail ls grep egrep rg find fd wc stat file pwd which tree nl cut sort uniq".split())
GIT = frozenset("status diff log show blame branch ls-files grep rev-parse".split())
WRITES = re.compile(r">|\btee\b|-i\b|-exec\b|-delete\b|\$\(|`")


class Apart(Struct):
    """A group that ran one after the other and seems independent."""

    what: str  # reads, sub-agents
    agent: str
    rows: list[int]  # the calls, or the launches
    names: list[str]  # their tools, or the agents
    seconds: float  # at most saved
    usd: float  # at most saved; NaN where a price is not known


def only_reads(tool: str | None, raw: str | None) -> bool:
    """Whether a call only reads, by its tool and, for a shell, by its command.

    >>> only_reads("Read", None), only_reads("Bash", '{"command": "cd src && git log -3 | head"}')
    (True, True)
    >>> make, write = '{"command": "make test"}', '{"command": "cat a > b"}'
    >>> only_reads("Bash", make), only_reads("Bash", write), only_reads("Edit", None)
    (False, False, False)
    """
    if tool in READS:
        return True
    return tool in SHELLS and raw is not None and _reads(raw)


@cache
def _reads(raw: str) -> bool:
    texts = list(strings(msgspec.json.decode(raw)))
    command = texts[0] if texts else ""
    if not command or WRITES.search(command.replace("2>/dev/null", "").replace("2>&1", "")):
        return False
    for part in re.split(r"&&|\|\||[|;\n]", command):
        words = part.split()
        if not words or words[0] == "cd":
            continue
        if words[0] == "git":
            options = [w for w in words[1:] if not w.startswith("-")]
            if not options or options[0] not in GIT:
                return False
        elif words[0] == "sed":
            if "-n" not in words:
                return False
        elif words[0] not in COMMANDS:
            return False
    return True


def ran_apart(run: RunColumns) -> list[Apart] | None:
    """The groups, the longest saving first; None where no content was kept to tell by."""
    if "content" not in run.trace.extra_e:
        return None
    groups = [*_reads_apart(run), *_agents_apart(run)]
    return sorted(groups, key=lambda g: -g.seconds)


# ---- reads


def _reads_apart(run: RunColumns) -> Iterator[Apart]:
    for chain in _chains(run):
        group: list[int] = []
        for call in chain:
            if group and _waits(run, group, call):
                if len(group) > 1:
                    yield _saved(run, group)
                group = []
            group.append(call)
        if len(group) > 1:
            yield _saved(run, group)


def _chains(run: RunColumns) -> Iterator[list[int]]:
    """Turns in a row of one agent that make one call each, which only reads and succeeds: those calls."""
    trace = run.trace
    calls_of_turn = np.bincount(run.turn_of_e[run.turn_of_e >= 0], minlength=trace.n_events)
    call_of_turn = np.full(trace.n_events, -1)
    calls = np.flatnonzero(run.call_e & (run.turn_of_e >= 0))
    call_of_turn[run.turn_of_e[calls]] = calls
    tools = trace.tool_e
    able = np.isin(tools.codes, [i for i, word in enumerate(tools.words) if word in READS | SHELLS])
    result = run.result_of_e
    single = (calls_of_turn == 1) & able[call_of_turn] & (result[call_of_turn] >= 0)
    single &= trace.valid_e[result[call_of_turn]] != 0
    turns = np.flatnonzero(run.model_e)
    turns = turns[np.argsort(trace.agent_e[turns], kind="stable")]
    chain: list[int] = []
    before = -1, -1
    for turn, agent, task, one in zip(
        turns.tolist(),
        trace.agent_e[turns].tolist(),
        trace.task_e[turns].tolist(),
        single[turns].tolist(),
        strict=True,
    ):
        call = int(call_of_turn[turn])
        good = one and only_reads(tools[call], content_of(trace, call))
        if chain and not (good and before == (agent, task)):
            yield chain
            chain = []
        before = agent, task
        if good:
            chain.append(call)
    if chain:
        yield chain


def _waits(run: RunColumns, group: Sequence[int], call: int) -> bool:
    """Whether an input has no word of its own, or one that is in what the calls before it gave back."""
    inputs = [_words(content_of(run.trace, c)) for c in group]
    new = _words(content_of(run.trace, call)).difference(*inputs)
    results = [content_of(run.trace, int(run.result_of_e[c])) or "" for c in group]
    return not new or any(word in text for word in new for text in results)


def _words(raw: str | None) -> frozenset[str]:
    return frozenset() if raw is None else _words_of(raw)


@cache
def _words_of(raw: str) -> frozenset[str]:
    """Words of an input: names of files without their folders, patterns and other words of four letters or more."""
    words = re.split(r"[\s\"'()\[\]{}|;,:=<>]+", " ".join(strings(msgspec.json.decode(raw))))
    names = (re.split(r"[/\\]", word.rstrip("/\\"))[-1] for word in words if not word.startswith("-"))
    return frozenset(name for name in names if len(name) >= 4)


def _saved(run: RunColumns, calls: list[int]) -> Apart:
    trace = run.trace
    turns = run.turn_of_e[calls]
    took = np.nan_to_num(run.work_e[calls])
    seconds = float(np.nan_to_num(run.work_e[turns[1:]]).sum() + took.sum() - took.max())
    again = run.bill.tokens_fe[3, turns[1:]] * run.bill.rate_fe[3, turns[1:]] / 1e6
    agent = str(trace.name_a[int(trace.agent_e[calls[0]])])
    return Apart("reads", agent, calls, [str(trace.tool_e[c]) for c in calls], seconds, float(again.sum()))


# ---- sub-agents


def _agents_apart(run: RunColumns) -> Iterator[Apart]:
    """Sub-agents that one agent launched for one task, each after the one before it had returned."""
    trace = run.trace
    returns: dict[int, int] = {}
    for row in np.flatnonzero(trace.type_e == RETURN).tolist():
        returns.setdefault(int(trace.agent_e[row]), row)
    of: dict[tuple[int, int], list[int]] = {}
    for row in np.flatnonzero((trace.type_e == SPAWN) & (trace.to_e >= 0)).tolist():
        if int(trace.to_e[row]) in returns and trace.t_e[row] == trace.t_e[row]:
            of.setdefault((int(trace.agent_e[row]), int(trace.task_e[row])), []).append(row)
    for (agent, _), spawns in of.items():
        group: list[int] = []
        for spawn in spawns:
            backs = [returns[int(trace.to_e[s])] for s in group]
            after = all(_done(run, back) <= trace.t_e[spawn] for back in backs)
            if group and (not after or _told_by(run, group, backs, spawn)):
                if len(group) > 1:
                    yield _agents_saved(run, agent, group, returns)
                group = []
            group.append(spawn)
        if len(group) > 1:
            yield _agents_saved(run, agent, group, returns)


def _done(run: RunColumns, row: int) -> float:
    return float(np.fmax(run.trace.end_e[row], run.trace.t_e[row]))


def _told_by(run: RunColumns, spawns: list[int], backs: list[int], spawn: int) -> bool:
    """Whether a prompt has a word of its own that is in what came back before, or is not known."""
    prompt = text_of(content_of(run.trace, spawn))
    if prompt is None:
        return True
    new = marks(prompt).difference(*(marks(text_of(content_of(run.trace, s))) for s in spawns))
    return any(new & marks(text_of(content_of(run.trace, back))) for back in backs)


def _agents_saved(run: RunColumns, agent: int, spawns: list[int], returns: dict[int, int]) -> Apart:
    trace = run.trace
    who = [int(trace.to_e[s]) for s in spawns]
    lasted = np.array([_done(run, returns[a]) - float(trace.t_e[s]) for s, a in zip(spawns, who, strict=True)])
    names = [str(trace.name_a[a]) for a in who]
    return Apart(
        "sub-agents", str(trace.name_a[agent]), spawns, names, float(lasted.sum() - lasted.max()), float("nan")
    )
