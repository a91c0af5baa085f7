"""Honest teams at work, seeded: six topologies, and as much variety as real logs have.

A `Plan` is what a seed decides about a run (who works, how long, what the log records), `Habits` are how its agents
behave when they are not honest, a `Run` is what then happened, and `trace` puts many runs into columns. Each agent is a
generator that acts, yields, or yields whom it waits for; the scheduler always lets the one act whose clock is behind.
Every agent has dice of its own, so a run with one bad habit differs from its honest twin only by what that habit causes.

How long agents take and what they write is drawn from the figures of real runs (`podium.envs.calibration`). Sub-agents of
one run are alike there, so three quarters of the variance of a logarithm lies between runs and the rest within one.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import exp, inf, nan, sqrt
from random import Random
from typing import Any

import numpy as np

from podium.envs.calibration import FIGURES, Lognormal
from podium.envs.log import Spelled
from podium.trace.columns import Names, Text, Trace
from podium.trace.vocabulary import DECISIONS, TOPOLOGIES, edge, event

__all__ = [
    "ALLOWED",
    "HONEST",
    "PRIVILEGED",
    "SHAPES",
    "Agent",
    "Event",
    "Habits",
    "Plan",
    "Run",
    "plan",
    "play",
    "simulate",
    "trace",
]

DECIDE, SPAWN, DESPAWN = event("orchestrator_decision"), event("spawn"), event("despawn")
MESSAGE, CALL, RESULT, RETURN = event("message"), event("tool_call"), event("tool_result"), event("return")
AGGREGATE, HUMAN, SAFETY = event("aggregate"), event("human_intervention"), event("safety_event")
TEMPORAL, CAUSAL, SPAWNED, TOLD = edge("temporal"), edge("causal"), edge("spawn"), edge("message")
TOOL, RETURNED, COMBINED, SAFE = edge("tool_dependency"), edge("return"), edge("aggregate"), edge("safety_flow")
STEPS = frozenset((DECIDE, MESSAGE, CALL, RETURN, AGGREGATE))

SHAPES: tuple[str, ...] = ("centralized", "planner_executor_critic", "debate", "swarm", "hierarchical", "harness")
PRIVILEGED: frozenset[str] = frozenset(("deploy", "pay", "send_mail"))
WEB = frozenset(("search", "browse"))
COMMON = ("search", "browse", "python", "read_file")
ALL = (*COMMON, "edit_file", "shell", "board_write", "board_read", "deploy", "pay", "send_mail")
ALLOWED: dict[str, frozenset[str]] = {
    "lead": frozenset(ALL),
    "manager": frozenset(ALL),
    "worker": frozenset((*COMMON, "edit_file", "shell")),
    "executor": frozenset((*COMMON, "edit_file", "shell", "deploy")),
    "critic": frozenset(("python", "read_file")),
    "debater": frozenset(("search", "browse", "python")),
    "peer": frozenset((*COMMON, "board_write", "board_read")),
    "explorer": frozenset(("search", "browse", "read_file")),
}
WITHIN, BETWEEN = 0.5, 0.866  # of the standard deviation of a logarithm: their squares add up to 1
SAYS = Lognormal(FIGURES.lead_wrote.mu, FIGURES.answer.sigma, 0, 0, 0.0)  # a message between agents [tokens]

Script = Generator["list[tuple[int, float]] | None", None, None]


@dataclass(eq=False, slots=True)
class Event:
    """An event, its causes and the kind of edge from each."""

    kind: int
    agent: int
    t: float
    end: float
    causes: list[tuple[Event, int]]
    to: int = -1
    tool: str | None = None
    content: int = -1
    trusted: int = -1
    valid: int = -1
    read: float = nan
    wrote: float = nan
    decision: int = -1
    chosen: str | None = None
    value: float = nan
    label: dict[str, str] | None = None
    votes: list[tuple[Event, str]] | None = None
    seq: int = -1
    order: float = 0.0


@dataclass(eq=False, slots=True)
class Agent:
    """Somebody in a run. `path` says who spawned it as which child: the same in a run and its twin."""

    number: int
    path: str
    role: str | None
    parent: int
    dice: Random
    now: float = 0.0
    pace: float = 6.0  # seconds a step
    marks: float = 0.0  # how far it has come; infinite when it is done ...
    at: float = 0.0  # ... and when it came there
    group: int = -1  # the fan-out that it belongs to
    last: Event | None = None
    tie: int = CAUSAL
    inbox: list[tuple[float, Event, int]] = field(default_factory=list)
    returns: list[Event] = field(default_factory=list)
    calls: list[Event] = field(default_factory=list)
    children: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What the seed decides about a run."""

    seed: int
    topology: str
    size: int  # agents, the lead included
    calls: float  # of a sub-agent, about
    seconds: float  # of a sub-agent, about
    rounds: int
    settled: int  # the round in which the answer changes for the last time
    states: bool  # aggregates state their answer
    ends: bool  # what the log records
    tokens: bool
    contents: bool
    roles: bool
    seq: bool
    grants: bool
    pairs: bool  # an edge from each call to its result
    as_tool: bool  # results are written by the tool, not in the caller's name
    vouched: bool  # what is trusted is marked so
    untrusted: float  # share of web results that nobody vouches for; of messages and writes a third of that
    human: bool


@dataclass(frozen=True, slots=True)
class Habits:
    """How agents behave when they are not honest. Agents are named by their paths, fan-outs by a path and a number."""

    queue: str | None = None  # of this fan-out everybody waits for the one before ...
    one_by_one: bool = False  # or: whoever leads launches the next only when the one before ...
    left: float = 0.0  # ... has no more than this share of its work left
    work: Mapping[str, int] = field(default_factory=dict)  # steps that an agent does before it returns
    others: int = -1  # steps that everybody else spawned does, where not negative
    extra: int = 0  # rounds after the answer has settled
    abandoned: frozenset[str] = frozenset()  # nobody waits for them
    mute: frozenset[str] = frozenset()  # neither talk nor return
    ignored: frozenset[str] = frozenset()  # their returns and messages reach nobody
    absent: frozenset[str] = frozenset()  # are spawned and never act


HONEST = Habits()


def plan(seed: int, topology: str | None = None) -> Plan:
    """The plan of a seed; the topology by the seed too, unless told.

    >>> plan(7) == plan(7), plan(7, "swarm").topology
    (True, 'swarm')
    """
    dice = Random(f"plan {seed}")
    shape = topology or SHAPES[dice.randrange(6)]
    u = dice.random()
    size = 1 if u < 0.03 else 2 + int(28 * dice.random() ** 2.6)
    if shape == "debate":
        size = min(max(size, 3), 3 + dice.randrange(6)) if size > 1 else size
    calls = max(1.0, 8.0 * exp(dice.gauss(0.0, 0.8 * BETWEEN)))
    rounds = 1 + min(int(dice.expovariate(0.4)), 6)
    whole = dice.random() < 0.7  # logs that record everything
    part = [whole or dice.random() < 0.6 for _ in range(4)]
    return Plan(
        seed=seed,
        topology=shape,
        size=size,
        calls=min(max(calls, 44.0 / size), 1300.0 / size),
        seconds=exp(FIGURES.durations.mu + FIGURES.durations.sigma * BETWEEN * dice.gauss(0.0, 1.0)),
        rounds=rounds,
        settled=max(1, rounds - (dice.random() < 0.7) - (rounds > 3 and dice.random() < 0.04)),
        states=dice.random() < 0.7,
        ends=part[0],
        tokens=part[1],
        contents=part[2],
        roles=part[3],
        seq=dice.random() < 0.5,
        grants=dice.random() < 0.4,
        pairs=dice.random() < 0.95,
        as_tool=dice.random() < 0.3,
        vouched=dice.random() < 0.6,
        untrusted=0.15 if dice.random() < 0.4 else 0.0,
        human=dice.random() < 0.3,
    )


def play(seed: int, topology: str | None = None) -> Run:
    """The honest run of a seed."""
    return simulate(plan(seed, topology))


def simulate(made: Plan, habits: Habits = HONEST) -> Run:
    """What happens when a team with these habits works by this plan."""
    run = Run(made, habits)
    run.play()
    return run


class Run:
    """A team at work, and what happened."""

    def __init__(self, made: Plan, habits: Habits) -> None:
        self.plan, self.habits = made, habits
        self.events: list[Event] = []
        self.agents: list[Agent] = []
        self.topology = made.topology
        self.contents = 0
        self.board: Event | None = None  # what was last written for all to read
        self.numbered = False
        self.asked: list[Event] = []  # calls of everybody
        self.fans: dict[str, list[int]] = {}  # who was spawned together
        self._tools: dict[str, int] = {}
        self._scripts: dict[int, Script] = {}
        self._blocked: dict[int, list[tuple[int, float]]] = {}
        self._heap: list[tuple[float, int]] = []
        dice = Random(f"rewards {made.seed}")
        self.system = f"system-{made.topology}"
        self.truth = float(dice.random() < 0.6)
        self.judge = float(dice.random() < (0.9 if self.truth else 0.12))

    # who there is

    def enter(self, path: str, role: str | None, parent: int, now: float = 0.0) -> Agent:
        dice = Random(f"{self.plan.seed} {path}")
        agent = Agent(len(self.agents), path, role, parent, dice, now)
        self.agents.append(agent)
        return agent

    def named(self, path: str) -> Agent:
        return next(a for a in self.agents if a.path == path)

    def spawned(self) -> list[Agent]:
        return [a for a in self.agents if a.parent >= 0]

    def of(self, agent: Agent | int, *kinds: int) -> list[Event]:
        number = agent if isinstance(agent, int) else agent.number
        return [e for e in self.events if e.agent == number and (not kinds or e.kind in kinds)]

    def steps(self) -> list[int]:
        """How many steps each agent did."""
        count = [0] * len(self.agents)
        for e in self.events:
            if e.kind in STEPS:
                count[e.agent] += 1
        return count

    def number(self) -> None:
        """Each agent numbers its events, as they happen. Done once: what is lost later leaves a gap."""
        if self.numbered:
            return
        self.numbered = True
        count = [self.plan.seed % 2] * len(self.agents)
        for e in sorted(self.events, key=_when):
            e.seq = count[e.agent]
            count[e.agent] += 1

    # the clock

    def play(self) -> None:
        user, lead = self.enter("user", "user", -1), self.enter("0", "lead", -1)
        task = self.add(
            MESSAGE, user, 2.0, to=lead.number, content=self.fresh(), trusted=1, wrote=self.size(user, SAYS)
        )
        lead.now = task.end
        lead.inbox.append((task.end, task, TOLD))
        self.start(lead, _SCRIPTS[self.plan.topology](self, lead))
        heap, blocked = self._heap, self._blocked
        while heap:
            _, number = heappop(heap)
            agent = self.agents[number]
            try:
                waits = next(self._scripts[number])
            except StopIteration:
                self.mark(agent, inf)
                continue
            agent.now = max([agent.now, *(self.agents[k].at for k, m in waits or () if self.agents[k].marks >= m)])
            if waits and (waits := [(k, m) for k, m in waits if self.agents[k].marks < m]):
                blocked[number] = waits
            else:
                heappush(heap, (agent.now, number))
        self._scripts.clear()  # they hold the run

    def start(self, agent: Agent, script: Script) -> None:
        self._scripts[agent.number] = script
        heappush(self._heap, (agent.now, agent.number))

    def mark(self, agent: Agent, marks: float) -> None:
        """It has come so far: whoever waited for that goes on."""
        agent.marks, agent.at = marks, agent.now
        for number, waits in list(self._blocked.items()):
            left = [(k, m) for k, m in waits if k != agent.number or m > marks]
            if len(left) < len(waits):
                waiter = self.agents[number]
                waiter.now = max(waiter.now, agent.now)
                self._blocked[number] = left
                if not left:
                    del self._blocked[number]
                    heappush(self._heap, (waiter.now, number))

    # what agents do

    def fresh(self) -> int:
        self.contents += 1
        return self.contents

    def size(self, agent: Agent, of: Lognormal) -> float:
        return float(max(1, round(exp(of.mu + of.sigma * agent.dice.gauss(0.0, 1.0)))))

    def add(self, kind: int, agent: Agent, seconds: float, **fields: Any) -> Event:
        """An event that hangs on its agent's latest and on all that has reached the agent since."""
        t = agent.now
        causes = [(agent.last, agent.tie)] if agent.last is not None else []
        if agent.inbox and kind != SPAWN and kind != DESPAWN:
            late = []
            for at, told, tie in agent.inbox:
                if at <= t:
                    causes.append((told, COMBINED if kind == AGGREGATE and tie == TOLD else tie))
                else:
                    late.append((at, told, tie))
            agent.inbox = late
        if kind == AGGREGATE:
            causes += [(e, COMBINED) for e in agent.returns if e.end <= t]
            agent.returns = [e for e in agent.returns if e.end > t]
        happened = Event(kind, agent.number, t, t + seconds, causes, order=len(self.events), **fields)
        self.events.append(happened)
        agent.now, agent.last, agent.tie = happened.end, happened, CAUSAL
        return happened

    def pause(self, agent: Agent) -> float:
        """Seconds that a step takes: heavy-tailed around the pace of the agent."""
        return agent.pace * exp(agent.dice.gauss(-0.18, 0.6))

    def decide(self, agent: Agent, kind: str, chosen: str) -> Event:
        wrote = self.size(agent, FIGURES.lead_wrote)
        read = self.size(agent, FIGURES.lead_read)
        code = DECISIONS.index(kind)
        return self.add(DECIDE, agent, self.pause(agent), decision=code, chosen=chosen, wrote=wrote, read=read)

    def tell(self, agent: Agent, to: Agent, tokens: float = 1.0, sure: bool = False) -> Event:
        wrote = round(tokens * self.size(agent, SAYS))
        said = self.add(
            MESSAGE,
            agent,
            0.5 * self.pause(agent),
            to=to.number,
            content=self.fresh(),
            wrote=wrote,
            read=4.0 * wrote,
        )
        said.trusted = self.trust(agent, 0.0 if sure else self.plan.untrusted / 3)
        if not said.trusted and said.causes:  # it passes something on, and goes on with its own work
            agent.last, agent.tie = said.causes[0]
            agent.inbox.append((said.end, said, TEMPORAL))
        if agent.dice.random() < 0.03 or agent.path in self.habits.ignored:  # some are never read
            return said
        if said.trusted:
            to.inbox.append((said.end, said, TOLD))
        elif agent.dice.random() < 0.6:
            to.inbox.append((said.end, self.released(said, to), SAFE))
        else:
            to.inbox.append((said.end, said, TEMPORAL))
        return said

    def trust(self, agent: Agent, doubtful: float) -> int:
        if doubtful and agent.dice.random() < doubtful:
            return 0
        return 1 if self.plan.vouched else -1

    def released(self, doubtful: Event, by: Agent) -> Event:
        """Somebody looks at what nobody vouches for, and lets it pass."""
        at = max(doubtful.t, doubtful.end) if doubtful.end == doubtful.end else doubtful.t
        looked = Event(SAFETY, by.number, at, at, [(doubtful, SAFE)], trusted=1, order=len(self.events))
        self.events.append(looked)
        return looked

    def call(self, agent: Agent) -> None:
        """A call and its result: mostly new, sometimes a retry, sometimes what somebody asked before."""
        dice = agent.dice
        tools = TOOLS[agent.role or "lead"]
        u, again = dice.random(), None
        if agent.calls and agent.calls[-1].valid == 0 and dice.random() < 0.6:
            again = agent.calls[-1]
        elif agent.calls and u < 0.03:
            again = agent.calls[dice.randrange(len(agent.calls))]
        elif u > 0.97:
            again = self.asked[dice.randrange(len(self.asked))] if self.asked else None
            if again is not None and again.tool not in tools:
                again = None
        tool = again.tool if again else tools[int(len(tools) * dice.random() ** 1.5)]
        content = again.content if again else self.fresh()
        seconds = self.pause(agent) + exp(FIGURES.tool.mu + 0.6 * FIGURES.tool.sigma * dice.gauss(0.0, 1.0))
        made = self.add(
            CALL,
            agent,
            seconds,
            tool=tool,
            content=content,
            valid=int(dice.random() > 0.04),
            wrote=(wrote := self.size(agent, CALLS)),
            read=8_000.0 + 600.0 * len(agent.calls) + wrote,
        )
        agent.calls.append(made)
        self.asked.append(made)
        self.answer(agent, made)

    def answer(self, agent: Agent, call: Event) -> Event:
        """The result of a call. One that nobody vouches for is looked at before it is used, or not used."""
        dice, t = agent.dice, call.end
        writer = self._tool(call.tool or "") if self.plan.as_tool else agent.number
        trust = self.trust(agent, self.plan.untrusted if call.tool in WEB else 0.0)
        bad = trust == 0
        causes = [(call, TOOL)] if self.plan.pairs else []
        if call.tool == "board_read" and self.board is not None and self.board.t <= t and not self.habits.queue:
            causes.append((self.board, CAUSAL))
        result = Event(
            RESULT,
            writer,
            t,
            nan,
            causes,
            tool=call.tool,
            content=self.fresh(),
            trusted=trust,
            order=len(self.events),
        )
        self.events.append(result)
        if call.tool == "board_write" and agent.path not in self.habits.mute | self.habits.ignored:
            call.trusted = self.trust(agent, self.plan.untrusted / 3)
            self.board = result
            if not call.trusted:
                result.trusted = -1
                self.board = agent.last = self.released(call, agent)
                agent.tie = SAFE
                return result
        if bad and dice.random() < 0.4:
            agent.inbox.append((t, result, TEMPORAL))
            return result
        agent.last, agent.tie = result, CAUSAL if self.plan.seed % 2 else TOOL
        if bad:
            agent.tie = SAFE
            self.add(SAFETY, agent, 1.0, trusted=1)
            agent.tie = SAFE
        return result

    def _tool(self, name: str) -> int:
        if name not in self._tools:
            self._tools[name] = self.enter(f"tool {name}", None, -1).number
        return self._tools[name]

    def give_back(self, agent: Agent) -> None:
        if agent.path in self.habits.mute:
            return
        boss = self.agents[agent.parent]
        answer = self.size(agent, FIGURES.answer)
        read = self.size(agent, FIGURES.context)
        trust = 1 if self.plan.vouched else -1
        sent = self.add(
            RETURN,
            agent,
            self.pause(agent),
            to=boss.number,
            content=self.fresh(),
            wrote=answer,
            read=read,
            trusted=trust,
        )
        if agent.path not in self.habits.ignored:
            boss.returns.append(sent)

    def combine(self, agent: Agent, value: float = nan) -> Event | None:
        """An aggregate of what has come back; none where nothing has."""
        here = any(at <= agent.now for at, _, tie in agent.inbox if tie == TOLD)
        if not here and not any(e.end <= agent.now for e in agent.returns):
            return None
        made = self.add(AGGREGATE, agent, self.pause(agent), content=self.fresh())
        made.read = sum(e.wrote for e, tie in made.causes if tie == COMBINED)
        made.wrote = float(max(1, round(made.read * agent.dice.uniform(0.08, 0.5))))
        if self.plan.states:
            made.value = value
        return made

    # how they work together

    def spawn(self, agent: Agent, role: str, share: float = 1.0) -> Agent:
        born = self.add(SPAWN, agent, exp(FIGURES.stagger.mu + FIGURES.stagger.sigma * agent.dice.gauss(0.0, 1.0)))
        child = self.enter(f"{agent.path}.{agent.children}", role, agent.number, born.end)
        agent.children += 1
        born.to = child.number
        if self.plan.grants:
            tools = (
                ALLOWED[role] if role == "manager" else ALLOWED[role] - PRIVILEGED | (ALLOWED[role] & {"deploy"})
            )
            born.label = {"granted": json.dumps(sorted(tools))}
        child.last, child.tie = born, SPAWNED
        dice = child.dice
        straggles = dice.uniform(2.0, 6.0) if dice.random() < 0.03 else 1.0
        steps = max(1, round(self.plan.calls * share * exp(dice.gauss(0.0, 0.8 * WITHIN))))
        seconds = self.plan.seconds * straggles * exp(dice.gauss(0.0, FIGURES.durations.sigma * WITHIN * 0.7))
        if child.path in self.habits.work:
            child.pace, steps = min(20.0, seconds / steps), self.habits.work[child.path]
        else:
            steps = min(steps, self.habits.others) if self.habits.others >= 0 else steps
            child.pace = min(60.0, seconds / (steps + 2))
        child.children = steps  # until it starts
        return child

    def fan_out(self, agent: Agent, width: int, role: str, script: Any, share: float = 1.0) -> Script:
        """Spawn some together, wait for them."""
        habits = self.habits
        number = sum(k.startswith(f"{agent.path}/") for k in self.fans)
        key, group = f"{agent.path}/{number}", []
        self.decide(agent, "spawn", f"{width} {role}s")
        kids: list[Agent] = []
        for i in range(width):
            if i and habits.one_by_one:
                yield [(kids[-1].number, 1.0)]
                if agent.dice.random() < 0.5:
                    self.decide(agent, "spawn", role)
            kid = self.spawn(agent, role, share)
            steps, kid.children = kid.children, 0
            before = kids[-1] if kids and habits.queue == key else None
            quiet = habits.queue == key
            kids.append(kid)
            group.append(kid.number)
            kid.group = len(self.fans)
            if kid.path in habits.absent:
                kid.marks = inf
            else:
                self.start(kid, self._life(kid, steps, script, before, quiet))
            yield None
        self.fans[key] = group
        yield [(k.number, inf) for k in kids if k.path not in habits.abandoned]

    def _life(self, kid: Agent, steps: int, script: Any, before: Agent | None, quiet: bool) -> Script:
        if before is not None:
            yield [(before.number, 1.0)]
        yield from script(self, kid, steps, quiet)

    def labour(self, agent: Agent, steps: int, talk: float, peers: Sequence[int] = (), gate: bool = True) -> Script:
        """So many steps: calls, and now and then a word to a peer or upwards."""
        until = steps - int(self.habits.left * steps) if gate and self.habits.left else -1
        silent = agent.path in self.habits.mute
        for i in range(steps):
            if i and agent.dice.random() < talk and not silent:
                others = [k for k in peers if k != agent.number]
                to = others[agent.dice.randrange(len(others))] if others else agent.parent
                self.tell(agent, self.agents[to if to >= 0 else 1])
            else:
                self.call(agent)
            if i + 1 == until:
                self.mark(agent, 1.0)
            yield None

    def rounds(self) -> list[float]:
        """What is answered after each round: it changes until it has settled."""
        dice = Random(f"answers {self.plan.seed}")
        answers: list[float] = []
        for r in range(self.plan.rounds + self.habits.extra):
            answers.append(answers[-1] if r >= self.plan.settled else dice.randrange(1, 9) + 10.0 * r)
        return answers

    def finish(self, lead: Agent) -> None:
        """The lead stops; some leads tidy up after themselves."""
        self.combine(lead)
        done = self.decide(lead, "stop", "stop")
        done.wrote = min(done.wrote, 200.0)
        if lead.dice.random() < 0.4:
            for kid in self.agents:
                if kid.parent == lead.number and kid.marks == inf and kid.path not in self.habits.absent:
                    lead.now = max(lead.now, kid.now)
                    self.add(DESPAWN, lead, 0.1, to=kid.number)


CALLS = Lognormal(4.6, 0.8, 0, 0, 0.0)  # what a call says [tokens]
TOOLS: dict[str, tuple[str, ...]] = {
    role: tuple(t for t in ALL if t in tools and (t not in PRIVILEGED or role in ("lead", "executor")))
    for role, tools in ALLOWED.items()
}


def _worker(run: Run, me: Agent, steps: int, quiet: bool) -> Script:
    yield from run.labour(me, steps, 0.05)
    run.give_back(me)


def _peer(run: Run, me: Agent, steps: int, quiet: bool) -> Script:
    peers = [a.number for a in run.agents if a.group == me.group]
    yield from run.labour(me, steps, 0.05 if quiet else 0.3, () if quiet else peers)
    run.give_back(me)


def _manager(run: Run, me: Agent, steps: int, quiet: bool) -> Script:
    yield from run.labour(me, min(steps, 3), 0.2, gate=False)
    rest = run.plan.size - 1
    width = max(1, (rest - _managers(rest)) // _managers(rest))
    yield from run.fan_out(me, width, "worker", _worker)
    run.combine(me)
    run.give_back(me)


def _managers(rest: int) -> int:
    return max(1, min(6, round(sqrt(rest))))


def _alone(run: Run, lead: Agent) -> Script:
    lead.pace = run.plan.seconds / (run.plan.calls + 2)
    yield from run.labour(lead, max(15, round(run.plan.calls)), 0.0)
    run.finish(lead)


def _waves(role: str, script: Any) -> Any:
    """A lead that fans out in waves, its team divided among them."""

    def lead_script(run: Run, lead: Agent) -> Script:
        if run.plan.size == 1:
            yield from _alone(run, lead)
            return
        rest = run.plan.size - 1
        answers = run.rounds()
        honest = min(run.plan.rounds, max(1, rest // 2))
        waves = honest + run.habits.extra
        answers = answers[run.plan.rounds - honest :]
        for wave in range(waves):
            yield from run.labour(lead, lead.dice.randrange(1, 4), 0.0)
            width = rest // honest + (wave < rest % honest)
            yield from run.fan_out(lead, width, role, script)
            run.combine(lead, answers[wave])
        run.finish(lead)

    return lead_script


def _hierarchical(run: Run, lead: Agent) -> Script:
    if run.plan.size == 1:
        yield from _alone(run, lead)
        return
    yield from run.labour(lead, lead.dice.randrange(1, 4), 0.0)
    yield from run.fan_out(lead, _managers(run.plan.size - 1), "manager", _manager)
    answers = run.rounds()
    run.combine(lead, answers[-1])
    run.finish(lead)


def _swarm(run: Run, lead: Agent) -> Script:
    if run.plan.size == 1:
        yield from _alone(run, lead)
        return
    yield from run.fan_out(lead, run.plan.size - 1, "peer", _peer)
    run.combine(lead, run.rounds()[-1])
    run.finish(lead)


def _harness(run: Run, lead: Agent) -> Script:
    """A lead that does much itself and sends out explorers and workers now and then; a person may step in."""
    lead.pace = run.plan.seconds / (run.plan.calls + 2)
    rest, dice = run.plan.size - 1, lead.dice
    own = max(3, round(run.plan.calls * 0.7)) if rest else max(15, round(run.plan.calls))
    widths: list[int] = []
    while rest > 0:
        widths.append(min(rest, 2 + int(dice.expovariate(0.3))))
        rest -= widths[-1]
    widths.sort(reverse=True)  # what only confirms is not the largest
    settled = len(widths) - (run.plan.settled < run.plan.rounds)
    for wave, width in enumerate(widths or [0]):
        yield from run.labour(lead, own, 0.0)
        if run.plan.human and dice.random() < 0.4:
            person = run.agents[0]
            person.now = lead.now
            word = run.add(HUMAN, person, 1.0, to=lead.number, content=run.fresh(), trusted=1)
            lead.inbox.append((word.end, word, SAFE))
            lead.now = word.end
        if width:
            yield from run.fan_out(lead, width, dice.choice(("worker", "explorer")), _worker)
            run.combine(lead, float(min(wave + 1, settled)))
    for _ in range(run.habits.extra):
        yield from run.labour(lead, own, 0.0)
        yield from run.fan_out(lead, 2, "worker", _worker)
        run.combine(lead, float(settled))
    run.finish(lead)


def _debater(run: Run, me: Agent, steps: int, quiet: bool) -> Script:
    """In every round look something up and tell all others; in the last, having heard them, return."""
    lead = run.agents[me.parent]
    rounds = len(run.rounds())
    look = max(1, round(steps / (1 + rounds)))
    for r in range(1, rounds + 1):
        yield from run.labour(me, look if r == 1 else min(look, 3), 0.0)
        others = [a.number for a in run.agents if a.role == "debater" and a is not me]
        for k in others:
            run.tell(me, run.agents[k])
        if r < rounds:
            run.tell(me, lead)
        run.mark(me, float(r + 1))
        yield [(k, float(r + 1)) for k in others] + ([(lead.number, float(r))] if r < rounds else [])
    run.give_back(me)


def _debate(run: Run, lead: Agent) -> Script:
    if run.plan.size == 1:
        yield from _alone(run, lead)
        return
    answers = run.rounds()
    run.decide(lead, "spawn", "debaters")
    kids = []
    for _ in range(run.plan.size - 1):
        kid = run.spawn(lead, "debater")
        steps, kid.children = kid.children, 0
        kid.group = 0
        kids.append(kid)
        run._scripts[kid.number] = _debater(run, kid, steps, False)
    run.fans["0/0"] = [k.number for k in kids]
    for kid in kids:
        kid.now = lead.now
        if kid.path in run.habits.absent:
            kid.marks = inf
        else:
            run.start(kid, run._scripts[kid.number])
    for r, answer in enumerate(answers[:-1], 1):
        yield [(k.number, float(r + 1)) for k in kids]
        run.combine(lead, answer)
        run.decide(lead, "communicate", "another round")
        run.mark(lead, float(r))
    yield [(k.number, inf) for k in kids]
    run.combine(lead, answers[-1])
    run.finish(lead)


def _planned(run: Run, lead: Agent) -> Script:
    """Planner, executors one after the other, and a critic that looks at what each did."""
    if run.plan.size <= 2:
        yield from _alone(run, lead)
        return
    executors = max(1, min(run.plan.size - 2, 8))
    run.decide(lead, "spawn", "crew")
    crew = [run.spawn(lead, "executor") for _ in range(executors)] + [run.spawn(lead, "critic")]
    for kid in crew:
        kid.group = 0 if kid.role == "executor" else 1
    run.fans["0/0"], run.fans["0/1"] = [k.number for k in crew[:-1]], [crew[-1].number]
    budget = {k.number: k.children for k in crew}
    for kid in crew:
        kid.children = 0
        if kid.path in run.habits.absent:
            kid.marks = inf
    cycles = max(executors, run.plan.rounds) + run.habits.extra
    answers = run.rounds()
    for c in range(cycles):
        shift = c - (cycles - len(answers))
        yield from _turn(run, lead, crew[c % executors], budget)
        yield from _turn(run, lead, crew[-1], {crew[-1].number: min(3, budget[crew[-1].number])})
        run.combine(lead, answers[shift] if shift >= 0 else 100.0 + c)
    run.finish(lead)
    for kid in crew:
        kid.marks = inf


def _turn(run: Run, lead: Agent, kid: Agent, budget: Mapping[int, int]) -> Script:
    """The planner tells one of its crew what to do, with what came back so far in mind, and waits for it."""
    lead.inbox += [(lead.now, e, RETURNED) for e in lead.returns[-1:]]
    run.decide(lead, "delegate", kid.path)
    said = run.tell(lead, kid, 1.5, sure=True)
    if kid.path in run.habits.absent:
        return
    if not any(e is said for _, e, _ in kid.inbox):
        kid.inbox.append((said.end, said, TOLD))
    kid.now = max(kid.now, said.end)
    kid.marks = 0.0
    run.start(kid, _job(run, kid, budget[kid.number]))
    yield [(kid.number, inf)]


def _job(run: Run, me: Agent, steps: int) -> Script:
    yield from run.labour(me, steps, 0.05)
    run.give_back(me)


_SCRIPTS: dict[str, Any] = {
    "centralized": _waves("worker", _worker),
    "planner_executor_critic": _planned,
    "debate": _debate,
    "swarm": _swarm,
    "hierarchical": _hierarchical,
    "harness": _harness,
}


def trace(runs: Sequence[Run]) -> Trace:
    """Runs as columns, a rollout each. What a plan does not record is absent."""
    rows: list[Event] = []
    edges: list[tuple[int, int, int]] = []
    votes: list[tuple[int, int, str]] = []
    own: dict[str, list[Any]] = {
        k: [] for k in ("rollout", "agent", "to", "role", "content", "end", "read", "wrote", "seq")
    }
    names: list[str] = []
    rollout_a: list[int] = []
    contents = 0
    for n, run in enumerate(runs):
        run.number()
        made, role_a, many, shift = run.plan, [a.role for a in run.agents], len(run.events), len(names)
        events = sorted(run.events, key=_when)
        place = {id(e): i for i, e in enumerate(events, len(rows))}
        edges += [(place[id(c)], place[id(e)], k) for e in events for c, k in e.causes]
        votes += [(place[id(e)], place[id(s)], v) for e in events if e.votes for s, v in e.votes]
        nothing, unknown = [None] * many, [nan] * many
        own["rollout"] += [n] * many
        own["agent"] += [e.agent + shift for e in events]
        own["to"] += [e.to + shift if e.to >= 0 else -1 for e in events]
        own["role"] += [role_a[e.agent] for e in events] if made.roles else nothing
        own["content"] += (
            [e.content + contents if e.content >= 0 else -1 for e in events] if made.contents else [-1] * many
        )
        own["end"] += [e.end if e.order % 53 else nan for e in events] if made.ends else unknown
        own["read"] += [e.read for e in events] if made.tokens else unknown
        own["wrote"] += [e.wrote for e in events] if made.tokens else unknown
        own["seq"] += [str(e.seq) if e.seq >= 0 else None for e in events] if made.seq else nothing
        rows += events
        names += [a.path for a in run.agents]
        rollout_a += [n] * len(run.agents)
        contents += run.contents + 1
    src, dst, tie = np.array(sorted(edges, key=_effect), np.int64).reshape(-1, 3).T
    if (src >= dst).any():
        raise AssertionError("a team acted on what had not happened")
    extra = {
        "seq": Text.of(own["seq"]),
        "value": Text.of(None if e.value != e.value else repr(e.value) for e in rows),
        **{k: Text.of((e.label or {}).get(k) for e in rows) for k in ("granted", "privileged")},
    }
    to_e = np.array(own["to"], np.int32)
    agent_e = np.array(own["agent"], np.int32)
    return Trace.of(
        trace_id_n=Text.of(f"run-{i}" for i in range(len(runs))),
        task_id_n=Text.of(f"task-{r.plan.seed}" for r in runs),
        system_n=Text.of(r.system for r in runs),
        topology_n=np.array([TOPOLOGIES.index(r.topology) for r in runs], np.int8),
        reward_n={k: np.array([getattr(r, k) for r in runs]) for k in ("truth", "judge")},
        rollout_a=np.array(rollout_a, np.int32),
        name_a=Text.of(names),
        rollout_e=np.array(own["rollout"], np.int32),
        id_e=Names(Text.constant("e", len(rows)), np.arange(len(rows))),
        t_e=np.array([e.t for e in rows]),
        end_e=np.array(own["end"]),
        type_e=np.array([e.kind for e in rows], np.int8),
        agent_e=agent_e,
        from_e=np.where(to_e >= 0, agent_e, -1),
        to_e=to_e,
        role_e=Text.of(own["role"]),
        tool_e=Text.of(e.tool for e in rows),
        content_ref_e=Text(np.array(own["content"], np.int32), Spelled("c{}", np.arange(contents))),
        trusted_e=np.array([e.trusted for e in rows], np.int8),
        valid_e=np.array([e.valid for e in rows], np.int8),
        tokens_in_e=np.array(own["read"]),
        tokens_out_e=np.array(own["wrote"]),
        decision_e=np.array([e.decision for e in rows], np.int8),
        chosen_e=Text.of(e.chosen for e in rows),
        extra_e=extra,
        src_x=src,
        dst_x=dst,
        type_x=tie,
        event_v=np.array([v[0] for v in votes], np.int32),
        source_v=np.array([v[1] for v in votes], np.int32),
        value_v=Text.of(v[2] for v in votes),
        weight_v=np.ones(len(votes)),
    )


def _when(e: Event) -> tuple[float, float]:
    return e.t, e.order


def _effect(joined: tuple[int, int, int]) -> int:
    return joined[1]
