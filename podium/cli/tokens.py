"""What `podium check --tokens` says: how many generations are of each class, the first places, and what to do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Any

from rich.table import Table
from rich.text import Text as Line

from podium.audit.exactness import CLASSES, PROOFS, Exactness
from podium.cli.output import out
from podium.plain import plain
from podium.trace.rules import LIMIT

__all__ = ["Allowed", "show_tokens", "told_tokens"]


class Allowed(StrEnum):
    """The classes that a user may accept. What is unknown is never one: nothing says what it is."""

    realigned = "realigned"
    fork = "fork"


ADVICE = {
    "realigned": "Text was tokenised again between turns. Hand the model ids instead of text, or train each of "
    "these generations as a "
    "row of its own; --allow realigned accepts them.",
    "fork": "If a branch is meant (compaction, edited history, a second answer), it is a row of its own: --allow "
    "fork accepts it. If it is "
    "not, the harness changes what was said before.",
    "unknown": "Do not train on these. Record the ids of prompt and answer (mask 0 and 1), and `context` with "
    "`start` where a generation "
    "owns only what is new.",
}
NOTHING = "No generation carries token ids, so nothing is proven. Record `tokens`, with the prompt as mask 0."


def told_tokens(exact: Sequence[tuple[str, Exactness]], allow: Collection[str]) -> dict[str, Any]:
    """The answer as data. It is ok if there are generations, all of them clean or of a class that is allowed."""
    accepted = {"clean"} | {Allowed(a).value for a in allow}
    count = {name: sum(e.count(name) for _, e in exact) for name in CLASSES}
    places = {
        name: [{"file": f, "row": row, "message": e.said[row]} for f, e in exact for row in e.rows(name)][:LIMIT]
        for name in CLASSES[1:]
    }
    proofs = {proof: sum(int((e.proof_g == i).sum()) for _, e in exact) for i, proof in enumerate(PROOFS)}
    todo = [ADVICE[name] for name in CLASSES[1:] if count[name] and name not in accepted]
    return {
        "ok": sum(count.values()) > 0 and not any(n for name, n in count.items() if name not in accepted),
        "generations": sum(count.values()),
        "tokens": sum(e.tokens for _, e in exact),
        "classes": count,
        "clean_by": proofs,
        "inferred": sum(int(e.inferred_g.sum()) for _, e in exact),
        "without_logp": sum(e.silent for _, e in exact),
        "places": places,
        "todo": todo if sum(count.values()) else [NOTHING],
    }


def show_tokens(told: dict[str, Any]) -> None:
    table = Table("class", "generations", box=None)
    table.add_column("first places", overflow="fold")
    for name, n in told["classes"].items():
        lines = [f"{p['file']}: row {p['row']}: {p['message']}" for p in told["places"].get(name, ())[:3]]
        if name == "clean":
            lines = [", ".join(f"{k} by {proof}" for proof, k in told["clean_by"].items() if k)]
        elif n > 3:
            lines.append(f"... and {n - 3} more; --json has them")
        table.add_row(name, str(n), Line(plain_lines(lines)), style=None if name == "clean" or not n else "red")
    out.print(table)
    for sentence in told["todo"]:
        out.print(Line(sentence, style="yellow"))
    counted = f"tokens: {told['generations']} generations, {told['tokens']} tokens"
    guessed = f"; the context of {told['inferred']} was inferred" if told["inferred"] else ""
    bare = f"; {told['without_logp']} tokens lack a log-probability or mask" if told["without_logp"] else ""
    verdict = "exact" if told["ok"] and not told["classes"]["realigned"] + told["classes"]["fork"] else "accepted"
    out.print(Line(f"{counted}{guessed}{bare}: {verdict if told['ok'] else 'not exact'}"))


def plain_lines(lines: Sequence[str]) -> str:
    return "\n".join(map(plain, lines))
