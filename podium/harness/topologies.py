"""The six topologies of the survey (section 4.1) as short teams of scripted agents, each on a small task with a
right answer.

They run out of the box: `podium run NAME`. Read them as examples: a team is a lead, roles and tools over one core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from podium import registry
from podium.harness.budget import Budget
from podium.harness.team import Role, Team
from podium.harness.tools import Tool, tool
from podium.harness.types import Action, Aggregate, Call, Delegate, Return, See, Send, Spawn, Stop, Wait

__all__ = ["TEAMS", "debate", "hierarchy", "managed", "plan", "research", "swarm"]

Did = Action | list[Action] | str

CAPITALS = {"France": "Paris", "Peru": "Lima", "Kenya": "Nairobi", "Japan": "Tokyo", "Cuba": "Havana"}
FILES = {
    "README": "the answer is in notes",
    "notes": "look into config",
    "config": "port = 8041",
    "todo": "nothing",
}


def right(task: Any, answer: Any) -> float:
    """1 if the answer is the one that the task says."""
    return float(answer == task["answer"])


@tool(effect="replayable", outside=True)
def search(query: str) -> str:
    """Looks a country up."""
    return f"{query}: {CAPITALS.get(query, 'nothing found')}"


@tool(effect="pure")
def calculate(a: float, op: str, b: float) -> float:
    """Adds, subtracts or multiplies."""
    return {"+": a + b, "-": a - b, "*": a * b}[op]


@tool(effect="pure")
def read(name: str) -> str:
    """Reads a file."""
    return FILES.get(name, "no such file")


@registry.register("team")
def research() -> Team:
    """Centralised: a lead sends out one researcher a question and puts the answers together."""

    async def lead(see: See) -> Did:
        if see.turn == 0:
            return [Spawn(role="researcher", task=question) for question in see.task["questions"]]
        return [Aggregate(how="every"), Stop()]

    async def researcher(see: See) -> Did:
        if see.turn == 0:
            return Call(tool="search", args={"query": see.task})
        return Return(content=see.results[0].split(": ")[1] if see.results else "unknown")

    task = {"questions": list(CAPITALS), "answer": list(CAPITALS.values())}
    return Team(
        "research",
        lead,
        {"researcher": Role(researcher, retries=1)},
        [search],
        "centralized",
        verify=lambda task, answer: float(sorted(answer or []) == sorted(task["answer"])),
        task=task,
    )


@registry.register("team")
def plan() -> Team:
    """Planner, executor, critic: steps are carried out one by one, and a critic sends a wrong one back."""

    async def lead(see: See) -> Did:
        if see.turn == 0:
            return [Spawn(role="executor"), Spawn(role="critic"), Delegate(to="executor-1", task=_next(see, 0.0))]
        came = [i for i in see.new if i.kind == "return"]
        if not came or came[-1].fault:
            return Stop()
        if came[-1].source == "executor-1":
            return Delegate(to="critic-1", task=[*_asked(see), came[-1].content])
        good, value = came[-1].content
        done = sum(1 for i in see.items("return") if i.source == "critic-1" and i.fault is None and i.content[0])
        if good and done == len(see.task["steps"]):
            return Stop(answer=value)
        return Delegate(to="executor-1", task=_next(see, value) if good else _asked(see))

    def _next(see: See, value: float) -> list[Any]:
        done = sum(1 for i in see.items("return") if i.source == "critic-1" and i.fault is None and i.content[0])
        return [value, *see.task["steps"][done]]

    def _asked(see: See) -> list[Any]:
        """What the executor was last asked to do."""
        delegated = [a for _, acts in see.history for a in acts if isinstance(a, Delegate) and a.to == "executor-1"]
        return list(delegated[-1].task)

    async def executor(see: See) -> Did:
        if see.new[-1].kind == "task":
            a, op, b = see.new[-1].content
            slip = see.random.random() < 0.3
            return Call(tool="calculate", args={"a": a, "op": op, "b": b + slip})
        return Return(content=see.results[0] if see.results else None)

    async def critic(see: See) -> Did:
        if see.new[-1].kind == "task":
            a, op, b, _ = see.new[-1].content
            return Call(tool="calculate", args={"a": a, "op": op, "b": b})
        claim = see.items("task")[-1].content[3]
        return Return(content=[bool(see.results) and claim == see.results[0], claim])

    task = {"steps": [["+", 7], ["*", 6], ["-", 2], ["*", 3]], "answer": 120.0}
    return Team(
        "plan", lead, {"executor": executor, "critic": critic}, [calculate], "planner_executor_critic",
        Budget(steps=200), verify=right, task=task,
    )  # fmt: skip


@registry.register("team")
def debate() -> Team:
    """Debate: each has seen a part of the evidence, they tell each other what they have, then vote."""

    async def lead(see: See) -> Did:
        if see.turn == 0:
            evidence = see.task["seen"]
            names = [f"debater-{i + 1}" for i in range(len(evidence))]
            return [Spawn(role="debater", task=part, context=names) for part in evidence]
        return [Aggregate(how="vote"), Stop()]

    async def debater(see: See) -> Did:
        others = [name for name in see.context if name != see.name]
        says: list[Action] = [Send(to=name, content=see.task) for name in others] if see.turn == 0 else []
        heard = see.items("message")
        if len(heard) < len(others):
            return [*says, Wait()]
        votes = [vote for part in (see.task, *(i.content for i in heard)) for vote in part]
        return [*says, Return(content=max(sorted(set(votes)), key=votes.count))]

    task = {"seen": [["red", "blue", "red"], ["blue", "red"], ["blue", "blue", "blue"]], "answer": "blue"}
    return Team(
        "debate",
        Role(lead, spawns=("debater",), patience=10.0),
        {"debater": debater},
        (),
        "debate",
        verify=right,
        task=task,
    )


@registry.register("team")
def swarm() -> Team:
    """Parallel swarm: many alike, each counts the primes in a slice; the lead adds them up."""

    async def lead(see: See) -> Did:
        if see.turn == 0:
            below, n = see.task["below"], see.task["agents"]
            return [Spawn(role="counter", task=[i * below // n, (i + 1) * below // n]) for i in range(n)]
        return [Aggregate(how="total"), Stop()]

    async def counter(see: See) -> Did:
        low, high = see.task
        return Return(
            content=sum(n > 1 and all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(low, high))
        )

    return Team(
        "swarm", lead, {"counter": counter}, (), "swarm", slots=8, verify=right,
        task={"below": 500, "agents": 20, "answer": 95},
    )  # fmt: skip


@registry.register("team")
def hierarchy() -> Team:
    """Hierarchical: whoever has more numbers than two spawns one below itself for each half."""

    async def adder(see: See) -> Did:
        numbers = see.task["numbers"] if isinstance(see.task, dict) else see.task
        if len(numbers) <= 2:
            return Return(content=sum(numbers))
        if see.turn == 0:
            half = len(numbers) // 2
            return [Spawn(role="adder", task=part) for part in (numbers[:half], numbers[half:])]
        return [Aggregate(how="total"), Stop()]

    numbers = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    return Team(
        "hierarchy", adder, {"adder": Role(adder, spawns=("adder",))}, (), "hierarchical", Budget(depth=5),
        verify=right, task={"numbers": numbers, "answer": sum(numbers)},
    )  # fmt: skip


@registry.register("team")
def managed() -> Team:
    """Managed harness: one agent works with tools under limits, and sends out an explorer that may only read."""

    async def lead(see: See) -> Did:
        if see.turn == 0:
            return Spawn(role="explorer", task=see.task["start"], tools=["read"])
        paths = [r for r in see.returns if isinstance(r, str)]
        if see.turn == 1 and paths:
            return Call(tool="read", args={"name": paths[-1]})
        text = next((r for r in see.results if isinstance(r, str) and "=" in r), "")
        return Stop(answer=int(text.split("=")[1]) if text else None)

    async def explorer(see: See) -> Did:
        if see.turn == 0:
            return Call(tool="read", args={"name": see.task})
        words = see.results[0].split() if see.results else []
        if words and words[-1] in FILES:
            return Call(tool="read", args={"name": words[-1]})
        reads = [a.args["name"] for _, acts in see.history for a in acts if isinstance(a, Call)]
        return Return(content=reads[-1])

    return Team(
        "managed", lead, {"explorer": explorer}, [read, calculate], "harness",
        Budget(steps=50, agents=4, depth=1, seconds=60.0), verify=right, task={"start": "README", "answer": 8041},
    )  # fmt: skip


TEAMS: dict[str, Callable[[], Team]] = {
    make.__name__: make for make in (research, plan, debate, swarm, hierarchy, managed)
}
TOOLS: tuple[Tool, ...] = (search, calculate, read)
