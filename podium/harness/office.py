"""A live team to train: a planner who says what is wanted, a worker with a calculator that sometimes fails, a
critic who lets the answer pass or not.

A question is two numbers and a word, such as "7 and 3, together". The planner asks for a sum, a difference or a
product, and hires a worker with the tool for that and one other; the worker calls one of them; what the tool says
is garbled with probability `FLAW`, and then ends in a question mark; the critic accepts it or sends it back, and
then the planner asks once more, another worker.

    reward = 1 if the answer is right, less PRICE if it took a second round

Everybody who does what its words say reaches the optimum: V = (1 - f) + f (1 - f - price), the critic sending back
exactly what is garbled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np

from podium.harness import Call, Did, Item, Return, Role, Spawn, Stop, Team, Tool
from podium.harness.types import Action, Caller, Said, See
from podium.trace.vocabulary import Decision

__all__ = ["AGENTS", "FLAW", "MOST", "PRICE", "Speak", "office", "optimum", "questions", "verify"]

Speak = Callable[
    [See, Decision, str, Sequence[str]], Awaitable[tuple[str, Said]]
]  # one of some options, and its tokens
Make = Callable[[str], Action]

AGENTS = ("lead", "worker", "critic")  # the lead is the planner
FLAW, PRICE, MOST = 0.3, 0.1, 2  # a garbled result, a second round, and rounds at most
WORDS = {"sum": ("together", "in all"), "difference": ("apart", "left over"), "product": ("times", "fold")}
ACCEPT = "accept"
ASKS, VERDICTS = tuple(WORDS), (ACCEPT, "send back")
TOOLS: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
}


def optimum(flaw: float = FLAW, price: float = PRICE) -> float:
    """
    >>> round(optimum(), 3)
    0.88
    """
    return (1 - flaw) + flaw * (1 - flaw - price)


def questions(n: int, seed: int, held_out: bool = False) -> list[dict[str, Any]]:
    """So many questions. Pairs of numbers whose sum is a multiple of three are held out."""
    dice = np.random.default_rng([seed, 0x0FF1CE])
    pairs = [(a, b) for a in range(2, 10) for b in range(2, a + 1) if ((a + b) % 3 == 0) == held_out]
    words = [word for some in WORDS.values() for word in some]
    return [
        dict(zip("ab", pairs[int(dice.integers(len(pairs)))], strict=True)) | {"word": words[int(dice.integers(6))]}
        for _ in range(n)
    ]


def verify(task: Mapping[str, Any], answer: Any) -> float:
    """What an answer, with the rounds that it took, is worth."""
    if not isinstance(answer, dict):
        return 0.0
    number = next(k for k, words in enumerate(WORDS.values()) if task["word"] in words)
    right = [*TOOLS.values()][number](task["a"], task["b"])
    return float(answer.get("value") == str(right)) - PRICE * (int(answer.get("rounds", 1)) - 1)


def office(speak: Speak) -> Team:
    """The team, whose agents say what `speak` makes of what they see."""

    async def said(see: See, kind: Decision, told: str, options: Sequence[str], make: Make) -> Did:
        prompt = "\n".join([told, "options:", *(f"- {option}" for option in options)])
        option, tokens = await speak(see, kind, prompt, options)
        return Did([make(option)], said=tokens)

    async def planner(see: See) -> Any:
        question = _question(see.task)
        if see.turn == 0:
            return await said(see, "spawn", f"you are: planner\nquestion: {question}", ASKS, _hire(see.task, 1))
        reports, last = [i for i in see.items("return") if i.source.startswith("worker")], see.new[-1]
        answer = {"value": reports[-1].content["value"] if _fine(reports) else None, "rounds": len(reports)}
        if last.fault is not None or not _fine(reports) or len(reports) >= MOST or last.content == ACCEPT:
            return Stop(answer=answer)
        if last is reports[-1]:
            return Spawn(role="critic", name="critic", task={"question": question, **last.content})
        return await said(see, "spawn", f"critic: {last.content}", ASKS, _hire(see.task, len(reports) + 1))

    async def worker(see: See) -> Any:
        last = see.new[-1]
        if last.kind == "result":
            by = "nothing" if last.fault else last.tool
            return Return(content={"value": None if last.fault else last.content, "by": by})
        args = {"a": see.task["a"], "b": see.task["b"]}
        prompt = f"you are: worker\nasked: {see.task['ask']} of {args['a']} and {args['b']}"
        return await said(see, "delegate", prompt, see.tools, lambda tool: Call(tool=tool, args=args))

    async def critic(see: See) -> Any:
        shown = see.task
        prompt = f"you are: critic\nquestion: {shown['question']}\nreport: {shown['value']} by {shown['by']}"
        return await said(see, "communicate", prompt, VERDICTS, lambda verdict: Return(content=verdict))

    free: dict[str, Any] = {"seconds": None}  # a step waits until all others have been asked
    return Team(
        "office",
        Role(planner, spawns=("worker", "critic"), **free),
        {"worker": Role(worker, **free), "critic": Role(critic, tools=(), **free)},
        [_tool(name) for name in TOOLS],
        verify=verify,
    )


def _question(task: Mapping[str, Any]) -> str:
    return f"{task['a']} and {task['b']}, {task['word']}"


def _hire(task: Mapping[str, Any], number: int) -> Make:
    """The worker of a round: it has the tool for what it is asked, and one other, by the question."""

    def hired(ask: str) -> Action:
        names, right = list(TOOLS), ASKS.index(ask)
        other = (right + 1 + (task["a"] + task["b"]) % 2) % len(names)
        tools = [name for i, name in enumerate(names) if i in (right, other)]
        part = {"a": task["a"], "b": task["b"], "ask": ask}
        return Spawn(role="worker", name=f"worker {number}", tools=tools, task=part)

    return hired


def _fine(reports: Sequence[Item]) -> bool:
    return bool(reports) and reports[-1].fault is None


def _tool(name: str) -> Tool:
    def run(caller: Caller, a: int, b: int) -> str:
        right = TOOLS[name](a, b)
        return f"{right + 1}?" if Random(caller.seed).random() < FLAW else str(right)

    return Tool(name, run, "replayable", f"Calculates: {name} two numbers.", caller=True)
