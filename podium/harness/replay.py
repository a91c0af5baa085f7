"""History from any row on: a recorded run replayed, with something else at a row, and from there live.

Time is virtual: what the record has happens when it did, and what runs anew takes as long as its like took on
average. So the same replay twice is the same bytes. An agent is on record until something reaches it that the
record does not have, or fails to; what is not downstream of an intervention is therefore as it was.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace as with_fields
from heapq import heappop, heappush
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from podium.harness.actions import land
from podium.harness.bounded import Bounded
from podium.harness.budget import Hit
from podium.harness.choose import masked, other_action, placed, seconds_of, told
from podium.harness.core import HARNESS, INTERRUPTED, Core, Stamp
from podium.harness.member import GONE, GRANTED, IDLE, RESTING, THINKING, Mail, Member
from podium.harness.past import BadReplay, Past, PastCall, PastStep, read_past
from podium.harness.run import FLUSH, answered, awaited, new_folder, recorder, to_the_end
from podium.harness.team import Team, fingerprint
from podium.harness.tools import Tool, held
from podium.harness.types import Action, Fault, Item, Result, See, Spawn, crash, shown
from podium.harness.understand import Understood, understood
from podium.trace.columns import Trace, concat
from podium.trace.do import Do
from podium.trace.files import load
from podium.trace.write import run_fields

__all__ = ["BadReplay", "branch", "replay", "replayed", "team_of"]

TINY = 1e-9
A_WHILE = 1e-3  # that something takes whose like the record does not have
Happens = Callable[[], Coroutine[Any, Any, bool]]  # whether it did


class Replayer:
    """A run played again, driven by what was recorded."""

    def __init__(
        self,
        team: Team,
        past: Past,
        core: Core,
        dos: Sequence[Do],
        resample: tuple[str, int] | None,
        seed: int | None,
    ) -> None:
        self.team, self.past, self.core, self.seed = team, past, core, seed
        self._bounded = Bounded()
        self._agenda: list[tuple[float, int, Happens]] = []
        self._number = 0
        self._dos = {placed(past, do): do for do in dos}
        self._masks = [
            (past.t[do.row], name)
            for do in dos
            if do.what == "mask"
            for name in masked(past, do)
            if name != past.at.get(do.row, ("",))[0]
        ]
        self._silent: set[str] = set()  # masked before it was there
        self._resample = resample
        self._served: set[tuple[str, str]] = set()  # calls that the record will answer
        self._used: set[tuple[str, str]] = set()  # answers of tools that are called once
        self._sees: dict[str, See] = {}  # of steps that the record cut off
        self._under_way: set[asyncio.Task[Any]] = set()
        self._changed: int | None = None  # the place of the action that is another, in the step that ends
        self._unspawned: str | None = None  # the role of the agent that was spawned in its place
        self._run_out_at = inf

    # time

    def at(self, t: float, happens: Happens) -> None:
        self._number += 1
        heappush(self._agenda, (t, self._number, happens))

    async def play(self) -> None:
        self._schedule()
        self.started(self.core.lead)
        flushed = monotonic()
        try:
            while not self.core.over:
                if not self._agenda:
                    self.core.now += TINY
                    self.core.stall()
                    break
                t, _, happens = heappop(self._agenda)
                if t >= self._run_out_at:
                    t, happens = self._run_out_at, self._run_out
                self._t = t
                await happens()
                if monotonic() > flushed + FLUSH:
                    self.core.record.flush()
                    flushed = monotonic()
        except asyncio.CancelledError as error:
            if not self.core.over:
                self.core.now += TINY
                self.core.interrupt(str(error) or "it was cancelled")
            raise
        finally:
            await self._bounded.end(self._under_way)

    def tick(self) -> None:
        """It happens: the time is now what it is due at, or a little later where that has passed."""
        self.core.now = self._t if self._t > self.core.now else self.core.now + TINY

    def _schedule(self) -> None:
        """All that the record has, when it was."""
        past = self.past
        for t, name in self._masks:
            self.at(t, lambda n=name: self._mask_from(n))  # type: ignore[misc]
        for step in past.steps.values():
            self.at(step.t, lambda s=step: self._recorded_start(s))  # type: ignore[misc]
            if step.outcome is not None:
                self.at(step.end, lambda s=step: self._recorded_end(s))  # type: ignore[misc]
            elif not step.hit:
                self.at(step.end + TINY / 2, lambda s=step: self._cut_step(s))  # type: ignore[misc]
        for call in past.calls.values():
            if call.outcome is not None:
                self.at(call.t, lambda c=call: self._recorded_result(c))  # type: ignore[misc]
            else:
                self.at(call.t + TINY / 2, lambda c=call: self._cut_call(c))  # type: ignore[misc]
        for t, what, with_ in past.outside:
            self.at(t, lambda w=what, x=with_: self._from_outside(w, x))  # type: ignore[misc]
        self.at(past.end + TINY / 2, self._record_ends)
        if self.team.budget.seconds is not None:
            self._run_out_at = max(self.team.budget.seconds, past.end + TINY)

    # on record

    async def _recorded_start(self, step: PastStep) -> bool:
        m = self.core.members.get(step.agent)
        if m is None or not m.on_record or m.state not in (IDLE, RESTING) or self._elsewhere(m, step):
            return False
        self.tick()
        same_inbox = step.attempt or (
            [mail.key for mail in m.inbox] == step.saw and all(mail.clean for mail in m.inbox)
        )
        if not same_inbox or self.core.free == 0:
            self.leave(m)
            return True
        if self._resample == (m.name, m.turn):
            self.leave(m)
            return True
        if self.core.free is not None:
            self.core.free -= 1
        see = self.core.begin(m)
        if see is not None and step.hit:  # it was forbidden, and here it is not
            self.leave(m)
            self._launch(m, see)
        elif see is not None and step.outcome is None:
            self._sees[m.name] = see
        return True

    def _elsewhere(self, m: Member, step: PastStep) -> bool:
        return (m.turn, m.attempt) != (step.turn, step.attempt)

    async def _recorded_end(self, step: PastStep) -> bool:
        m = self.core.members.get(step.agent)
        if m is None or not m.on_record or m.state != THINKING or self._elsewhere(m, step):
            return False
        self.tick()
        assert step.outcome is not None
        await self._end(m, step.outcome)
        return True

    async def _cut_step(self, step: PastStep) -> bool:
        """In the record someone cut this step off; here nobody did."""
        m = self.core.members.get(step.agent)
        if m is None or not m.on_record or m.state != THINKING or self._elsewhere(m, step):
            return False
        self.tick()
        self.leave(m)
        self._launch(m, self._sees.pop(m.name))
        return True

    async def _recorded_result(self, call: PastCall) -> bool:
        m = self.core.members.get(call.agent)
        at = int(call.at.partition(".")[2])
        if m is None or (call.agent, call.at) not in self._served or not _pends(m, call.at):
            return False
        self.tick()
        assert call.outcome is not None
        self._result(m, at, call.outcome)
        return True

    async def _cut_call(self, call: PastCall) -> bool:
        m = self.core.members.get(call.agent)
        if m is None or (call.agent, call.at) not in self._served or not _pends(m, call.at):
            return False
        self.tick()
        self.leave(m)
        self._launch_call(m, int(call.at.partition(".")[2]))
        return True

    async def _from_outside(self, what: str, with_: Any) -> bool:
        core = self.core
        if what == "expire":
            m = core.members.get(with_)
            if m is None or not m.on_record or not m.awaiting:
                return False
            self.tick()
            core.expire(m)
        elif what == "run out" and with_["budget"] == "steps":
            if core.ledger.steps < with_["used"]:
                return False
            self.tick()
            core.run_out(Hit(**with_))
        elif what == "run out":
            await self._run_out()
        elif what == "stall":
            if not all(m.on_record for m in core.members.values()):
                return False
            self.tick()
            core.stall()
        elif what == "lost":
            m = core.members.get(with_[0])
            if m is None or not m.on_record or m.state == GONE:
                return False
            self.tick()
            if with_[1].kind == INTERRUPTED:
                core.interrupt(with_[1].why)
                return True
            core.cut_calls(m, with_[1], [])
            core.counted["faults"] += 1
            core.lose(m, with_[1], outside=True)
        elif what == "person":
            self._person(with_)
        return True

    async def _run_out(self) -> bool:
        self.tick()
        self.core.run_out()
        return True

    def _person(self, told: dict[str, Any]) -> None:
        core = self.core
        if told["at"] in ("pause", "resume"):
            self.tick()
            core.intervene(told["at"], told["by"])
        elif told["at"] == "inject":
            m = core.members.get(told["to"])
            if m is not None and m.state != GONE:
                self.tick()
                core.inject(told["to"], told["content"], told["by"])
        elif told["at"] == "edit":
            self.tick()
            core.edit(told["of"], told["content"], told["by"])

    async def _record_ends(self) -> bool:
        """From here on nothing is on record."""
        for m in list(self.core.members.values()):
            if m.on_record and m.state != GONE:
                self._t = self.core.now
                self.tick()
                self.leave(m)
        return True

    # off record

    def leave(self, m: Member) -> None:
        """From here on an agent is not what the record has: it runs live."""
        m.on_record = False
        if self.seed is not None:
            m.seed = self.seed
        if m.state == RESTING or (m.state == IDLE and m.ready()):
            self._live_start(m, self.core.now)
        if m.awaiting and m.role.patience is not None:
            self._expire_later(m, self.core.now + m.role.patience)

    def _live_start(self, m: Member, t: float) -> None:
        async def start() -> bool:
            if not (m.state in (RESTING, GRANTED) or (m.state == IDLE and m.ready())):
                return False
            self.tick()
            if not self.core.admit(m):
                return True
            see = self.core.begin(m)
            if see is not None:
                self._launch(m, see)
            return True

        self.at(t, start)

    def _launch(self, m: Member, see: See) -> None:
        task = asyncio.get_running_loop().create_task(self._think(m, see))
        self._under_way.add(task)
        turn, attempt = m.turn, m.attempt

        async def end() -> bool:
            if m.state != THINKING or (m.turn, m.attempt) != (turn, attempt):
                return False
            outcome = await task
            self.tick()
            await self._end(m, outcome)
            return True

        self.at(self.core.now + self.past.step_s.get(m.role_name, A_WHILE), end)

    async def _think(self, m: Member, see: See) -> Understood | Fault:
        async def step() -> Any:
            return await m.role.agent(see)

        try:
            return understood(await self._bounded.run(held(step()), m.role.seconds, "a step"))
        except Fault as fault:
            return fault if fault.kind != "nonsense" else Fault("nonsense", fault.why, retry=True)
        except Exception as error:
            return Fault("exception", shown(error), retry=True)
        except GeneratorExit as error:
            return crash(error)

    async def _end(self, m: Member, outcome: Understood | Fault) -> None:
        """A step ends, recorded or live; if it is to be otherwise here, it is."""
        changed, masked = None, False
        if m.on_record and isinstance(outcome, Understood):
            changed, do = self._change(m, len(outcome.actions))
            if do is not None and do.what == "mask":
                masked, outcome = True, _until(outcome, changed or 0)
            elif do is not None:
                self._unspawned = _unnamed(outcome.actions[changed or 0], do)
                outcome = other_action(self.core, m, outcome, changed or 0, do)
        if masked and isinstance(outcome, Understood) and not outcome.actions:
            self._mask(m)
            return
        self._changed = changed
        rest = self.core.end(m, outcome)
        self._changed = None
        if masked:
            self._mask(m)
        elif changed is not None and m.state != GONE:
            self.leave(m)
        elif rest is not None and not m.on_record:
            self._live_start(m, self.core.now + rest)
        elif not m.on_record and m.state == IDLE and m.ready():
            self._live_start(m, self.core.now)

    def _change(self, m: Member, actions: int) -> tuple[int | None, Do | None]:
        """The first action of a step that is to be otherwise."""
        for place in range(actions):
            do = self._dos.get(("act", m.name, f"{m.turn}.{place}"))
            if do is not None:
                return place, do
            for kind in ("message", "return"):  # it is sent, reaches nobody, and nothing comes after
                do = self._dos.get((kind, m.name, f"{m.turn}.{place}"))
                if do is not None and do.what == "mask":
                    return place + 1, do
        return None, None

    def _mask(self, m: Member) -> None:
        """From here on an agent does nothing."""
        if m.parent is None:
            self.core.finish(m.value, Fault("masked", "the lead is masked"))
        else:
            self.core.cut(m, "masked", HARNESS, None)

    async def _mask_from(self, name: str) -> bool:
        """Masks an agent that is there, or that will be, as soon as it is."""
        m = self.core.members.get(name)
        if m is None:
            self._silent.add(name)
            return False
        self.tick()
        self._mask(m)
        return True

    def _expire_later(self, m: Member, t: float) -> None:
        turn = m.turn

        async def expire() -> bool:
            if m.state == GONE or m.turn != turn or not m.awaiting or m.on_record:
                return False
            self.tick()
            self.core.expire(m)
            return True

        self.at(t, expire)

    def _launch_call(self, m: Member, at: int) -> None:
        pending = m.calls[at]
        tool, spot = self.core.tools[pending.call.tool], pending.fields["extra"]["at"]
        work: Coroutine[Any, Any, Result | Fault]
        if tool.effect == "once":
            work = _at_once(self._once(m, pending.call.tool, pending.call.args))
        else:
            work = self._call(tool, pending.call.args, m, at)
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)

        async def end() -> bool:
            if not _pends(m, spot):
                return False
            outcome = await task
            self.tick()
            self._result(m, at, outcome)
            return True

        self.at(self.core.now + self.past.call_s.get(tool.name, A_WHILE), end)

    async def _call(self, tool: Tool, args: dict[str, Any], m: Member, at: int) -> Result | Fault:
        outcome = answered(tool, args, m, at)
        if isinstance(outcome, Result | Fault):
            return outcome
        return await awaited(self._bounded, tool, args, outcome)

    def _once(self, m: Member, tool: str, args: Any) -> Result | Fault:
        """What a tool that must not be repeated answered when it was asked the same."""
        for key, call in self.past.calls.items():
            same = (call.agent, call.tool, call.args) == (m.name, tool, args)
            if same and call.outcome is not None and key not in self._used | self._served:
                self._used.add(key)
                return call.outcome
        return Fault("once", f"{tool} must not be repeated, and the record has no answer to this call")

    def _result(self, m: Member, at: int, outcome: Result | Fault) -> None:
        self.core.result(m, at, outcome)

    # what the core asks for

    def started(self, member: Member) -> None:
        if self.seed is not None and not member.on_record:
            member.seed = self.seed
        if member.name in self._silent:
            self._mask_later(member.name)

    def wake(self, member: Member) -> None:
        if not member.on_record:
            self._live_start(member, self.core.now)
        elif any(not mail.clean for mail in member.inbox):
            self.leave(member)

    def call(self, member: Member, at: int) -> None:
        spot = member.calls[at].fields["extra"]["at"]
        if member.on_record and (member.name, spot) in self.past.calls:
            self._served.add((member.name, spot))
        else:
            self._launch_call(member, at)

    def alarm(self, member: Member) -> None:
        assert member.role.patience is not None
        if not member.on_record:
            self._expire_later(member, self.core.now + member.role.patience)

    def drop(self, member: Member) -> None:
        pass

    def acting(self, member: Member, at: int) -> None:
        """In a step of which one action is another, the rest is what the record has."""
        if self._changed is None:
            return
        member.on_record = at != self._changed
        if at == self._changed and self._unspawned is not None:  # later children keep their names
            member.counts[self._unspawned] = member.counts.get(self._unspawned, 0) + 1

    def reworded(self, key: str, item: Item) -> None:
        do = self._dos.get(_of(key))
        if do is not None and do.what == "replace":
            item.content = do.value

    def altered(self, to: Member, mail: Mail) -> Mail | None:
        do = self._dos.get(_of(mail.key)) if mail.clean else None
        if do is None:
            return mail
        changed = msgspec.structs.replace(mail, clean=False)
        if do.what == "remove":
            if mail.item.kind == "message":
                return None
            gone = msgspec.structs.replace(mail.item, content="it was removed", fault="removed")
            return msgspec.structs.replace(changed, item=gone)
        if do.what == "delay":
            self._deliver_later(to, changed, seconds_of(do))
            return None
        if do.what == "mask":
            if mail.item.kind == "result":
                self._mask_later(mail.key.split(":")[1])
            return None
        return changed

    def _deliver_later(self, to: Member, mail: Mail, seconds: float) -> None:
        async def deliver() -> bool:
            self.tick()
            child = self.core.members.get(mail.item.source)
            if mail.item.kind == "return" and child is not None:
                land(self.core, child, to, mail)
            else:
                self.core.deliver(to, mail)
            return True

        self.at(self.core.now + seconds, deliver)

    def _mask_later(self, name: str) -> None:
        async def mask() -> bool:
            self.tick()
            self._mask(self.core.members[name])
            return True

        self.at(self.core.now, mask)


def _pends(m: Member, spot: str) -> bool:
    at = int(spot.partition(".")[2])
    return at in m.calls and m.calls[at].fields["extra"]["at"] == spot


def _unnamed(action: Action, do: Do) -> str | None:
    """The role whose next number an agent would have had that is not spawned now."""
    named = not isinstance(action, Spawn) or action.name is not None or action.role == do.value
    return None if named else action.role  # type: ignore[union-attr]


def _until(outcome: Understood, place: int) -> Understood:
    return Understood(outcome.actions[:place], outcome.raws[:place], outcome.usage)


async def _at_once(outcome: Result | Fault) -> Result | Fault:
    return outcome


def _of(key: str) -> tuple[str, str, str]:
    """What a piece of mail is, among the things that an intervention can be at."""
    kind, _, rest = key.partition(":")
    agent, _, spot = rest.rpartition(":")
    return kind, agent, spot


def replay(
    team: Team,
    trace: Trace,
    *,
    at: int | None = None,
    do: Do | Sequence[Do] | str | None = None,
    seed: int | None = None,
    folder: str | Path | None = None,
    trace_id: str | None = None,
) -> Trace:
    """A recorded run again. Without `at` and `do`, all of it from the record; with `do`, something else at a row (a
    Do, or what a Do does spelled "choose=VALUE", "replace=TEXT", "remove", "delay=SECONDS", "mask" or "mask=NAME",
    at row `at`); with `at` alone, the step of that row and what follows from it run live. With `seed`, what runs
    live draws anew. The record is in `folder`; without one, it is not kept.
    """
    with tempfile.TemporaryDirectory(prefix="podium-") as own:
        target = Path(own) / "run" if folder is None else Path(folder)
        to_the_end(replayed(team, trace, at, do, seed, target, trace_id))
        return load(target)


def branch(team: Team, trace: Trace, dos: Sequence[Do], seeds: Sequence[int] | None = None) -> Trace:
    """One run a Do: what the trace records up to its row, something else there, and on from it. The same call as
    worlds'.

    With `seeds`, one a Do, what runs live draws anew; without, agents draw what they would have (common random
    numbers). The runs know where they branched off.
    """
    if seeds is not None and len(seeds) != len(dos):
        raise BadReplay(f"expected one seed a Do, got {len(seeds)} for {len(dos)}")
    first, grown = trace.first_of("e"), []
    for i, do in enumerate(dos):
        if not 0 <= do.row < trace.n_events:
            raise BadReplay(f"there is no row {do.row}; there are {trace.n_events}")
        rollout = int(trace.rollout_e[do.row])
        local = with_fields(do, row=int(do.row - first[rollout]))
        name = f"{trace.trace_id_n[rollout]}/{i}"
        one = trace[rollout]
        grown.append(replay(team, one, do=local, seed=None if seeds is None else int(seeds[i]), trace_id=name))
    return concat(grown)


def team_of(trace: Trace) -> str:
    """The name under which the team of a recorded run can be found."""
    return read_past(trace).spec


async def replayed(
    team: Team, trace: Trace, at: int | None, do: Any, seed: int | None, target: Path, trace_id: str | None
) -> None:
    """`replay` for those who have an event loop: the record is in the folder `target`. Several can be under way at
    once."""
    dos = _dos(at, do)
    if seed is not None and at is None and not dos:
        raise BadReplay(
            f"seed {seed} is for what runs live from a row on: expected `at` or `do` with it, got neither"
        )
    past = read_past(trace)
    _check_harness(team, trace)
    resample = _resampled(past, at) if at is not None and not dos else None
    if len({placed(past, one) for one in dos}) < len(dos):  # raises where one makes no sense
        raise BadReplay(f"expected one intervention a place, got {', '.join(f'{d.what} at {d.row}' for d in dos)}")
    fields = _lineage(trace, past, dos, resample)
    if trace_id is not None:
        fields["trace_id"] = trace_id
    stamp, drawn = Stamp(), past.seed if seed is None else [past.seed, seed]
    new = not target.exists()
    new_folder(target, BadReplay)
    with recorder(target, stamp, team, past.task, drawn, past.spec, **fields) as record:
        core = Core(team, past.task, past.seed, record, stamp, None, None)  # type: ignore[arg-type]
        core.driver = replayer = Replayer(team, past, core, dos, resample, seed)
        try:
            await replayer.play()
        except BadReplay:
            if new:
                shutil.rmtree(target)
            raise
        finally:
            if core.over:
                core.counted["stubborn"] = 0
                record.outcome(**core.outcome())


def _lineage(trace: Trace, past: Past, dos: list[Do], resample: tuple[str, int] | None) -> dict[str, Any]:
    """Whose run it is: the record's own, or a branch of it in the same group and batch. A step that is done anew is
    another from its first row on."""
    own = run_fields(trace)
    fields: dict[str, Any] = {name: own[name] for name in ("group", "batch", "clock_skew_s") if name in own}
    fields["task_id"], name = trace.task_id_n[0], trace.trace_id_n[0]
    if not dos and resample is None:
        return fields | {"trace_id": name} | {key: own[key] for key in ("parent", "branch", "do") if key in own}
    row = past.steps[*resample, 0].row if resample is not None else min(do.row for do in dos)
    return fields | {"trace_id": f"{name}/0", "parent": name, "branch": row, "do": told(past, dos)}


def _resampled(past: Past, at: int) -> tuple[str, int]:
    if at not in past.at or not past.at[at][1][:1].isdigit():
        raise BadReplay(f"row {at} is no agent's doing: there is nothing to do anew")
    agent, spot = past.at[at]
    turn = int(spot.rstrip("!").partition(".")[0])
    if (agent, turn, 0) not in past.steps:
        raise BadReplay(f"row {at} came of something else than a step of {agent!r}: there is nothing to do anew")
    return agent, turn


def _check_harness(team: Team, trace: Trace) -> None:
    told, own = trace.harness_n[0], fingerprint(team)
    if told != own:
        raise BadReplay(
            f"{trace.trace_id_n[0]} was recorded under harness {told}, team {team.name!r} is harness {own}: "
            "its tools, prompts or limits are others"
        )


def _dos(at: int | None, do: Any) -> list[Do]:
    if do is None:
        return []
    if isinstance(do, str):
        if at is None:
            raise BadReplay(f"{do!r} at which row? Give `at`")
        what, given, value = do.partition("=")
        if what not in ("choose", "replace", "remove", "delay", "mask"):
            raise BadReplay(
                f"expected choose=VALUE, replace=TEXT, remove, delay=SECONDS, mask or mask=NAME, got {do!r}"
            )
        return [Do(at, what, value if given else None)]  # type: ignore[arg-type]
    return [do] if isinstance(do, Do) else list(do)
