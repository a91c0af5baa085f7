"""Writes what docs/ restate: tables of code, and figures of studies in the middle of a text. `python
docs/generate.py`; a test says when they are stale."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import msgspec

from podium.audit.report import described
from podium.cli.rewards import listing
from podium.envs.draws import seeds
from podium.envs.world import make, play, worlds
from podium.methods.table import counted
from podium.methods.table import described as described_methods
from podium.metrics import METRICS
from podium.registry import find, names
from podium.trace.columns import AXES, COLUMNS
from podium.trace.rules import RULES
from podium.trace.wire import Extension
from podium.view.picture import picture

DOCS = Path(__file__).parent
KINDS = {
    "float": "float, NaN absent",
    "int": "whole number",
    "tri": "0, 1",
    "code": "place in its word list",
    "row": "row of an event",
    "agent": "row of an agent",
    "rollout": "row of a rollout",
    "text": "string",
    "name": "id",
    "floats": "one column of floats a name",
    "texts": "one column of JSON a name",
}


def fields() -> str:
    schema = msgspec.json.schema(Extension)["$defs"]["Extension"]["properties"]
    rows = [f"| `{f.encode_name}` | {_type(schema[f.encode_name])} |" for f in msgspec.structs.fields(Extension)]
    return "\n".join(["| field | type |", "|---|---|", *rows])


def _type(schema: dict[str, object]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))  # type: ignore[call-overload]
    if "anyOf" in schema:
        return " or ".join(_type(s) for s in schema["anyOf"])  # type: ignore[attr-defined]
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"  # type: ignore[arg-type]
    if schema.get("type") == "object":
        return f"map to {_type(schema['additionalProperties'])}"  # type: ignore[arg-type]
    return str(schema.get("type", "any JSON"))


def columns() -> str:
    rows = [f"| `{c.name}` | {AXES[c.axis]} | {KINDS[c.kind]} |" for c in COLUMNS]
    return "\n".join(["| column | axis | values |", "|---|---|---|", *rows])


def rules() -> str:
    rows = [f"| `{r.id}` | {r.level} | {r.sentence} |" for r in RULES]
    return "\n".join(["| rule | level | what it says |", "|---|---|---|", *rows])


def world_table() -> str:
    rows = [
        f"| [`{name}`](envs/{name}.md) | {', '.join(w.decides)} | {(w.__doc__ or '').strip().splitlines()[0]} |"
        for name, w in worlds().items()
    ]
    return "\n".join(["| world | decides | score |", "|---|---|---|", *rows])


def parameters(name: str) -> str:
    """The parameters of a world and its picture."""
    rows = [
        f"| `{f.name}` | {f.default!r} | {f.metadata['allowed']} |"
        for f in dataclasses.fields(worlds()[name].Params)
    ]
    table = "\n".join(["| parameter | default | allowed |", "|---|---|---|", *rows])
    return f"![An episode of optimal play in {name}]({name}.svg)\n\n{table}"


def scores() -> str:
    rows = [
        f"| `{r['score']}` | {r['unit']} | {r['families']} | {r['needs']} | {r['about']} |"
        for r in listing()["scores"]
    ]
    return "\n".join(["| score | unit | families | needs | what it is |", "|---|---|---|---|---|", *rows])


def metrics() -> str:
    rows = [
        f"| {m.dimension} | {m.name}{' *' if m.operational else ''} | {', else '.join(f'`{s}`' for s in m.scores)} | {m.better} |"
        for m in METRICS
    ]
    return "\n".join(["| | metric | measured by the score | better |", "|---|---|---|---|", *rows])


def detectors() -> str:
    def row(told: dict[str, Any]) -> str:
        f = told["figures"]
        good = (
            "not measured | |"
            if f is None
            else f"{f['precision']:.3f} | {f['recall']:.3f} ({f['recall_edge']:.3f}) | {100 * f['false_alarms']:.2g} %"
        )
        where = " ".join([told["group"], *([told["vector"]] if "vector" in told else [])])
        return f"| `{told['detector']}` | {where} | {told['finds']} | {told['level']}, {told['confidence']} | {told['threshold']:g} | {told['needs']} | {good} |"

    head = [
        "| detector | group | finds | level | threshold | needs | precision | recall | false alarms |",
        "|" + "---|" * 9,
    ]
    return "\n".join([*head, *map(row, described())])


def methods() -> str:
    def row(told: dict[str, Any]) -> str:
        credit = f"`{told['reward']}`: `{told['credit']}`" if told["credit"] else f"card: {told['unknown']}"
        needs = ", ".join(told["needs"])
        return f"| `{told['method']}` | {told['pays']} | {needs} | {credit} | {told['runs']} | {told['source']} |"

    many = counted()
    tail = (
        f"{sum(many.values())} methods: {many['all']} run, {many['part']} are partly known and run that part, "
        f"{many['card']} are cards."
    )
    head = ["| method | pays | needs | reward: credit | runs | source |", "|" + "---|" * 6]
    return "\n".join([*head, *map(row, described_methods()), "", tail])


def steps() -> str:
    about = {n: " ".join((find("step", n).__doc__ or "").split("\n\n")[0].split()) for n in names("step")}
    return "\n".join(["| step | what it does |", "|---|---|", *(f"| `{n}` | {a} |" for n, a in about.items())])


def episode_picture(name: str) -> str:
    """An episode of optimal play: the first, of a few, that has more than a handful of events."""
    world = make(name)
    trace = world.trace(play(world, world.optimal(), seeds(0, 20), log=True).state)
    return picture(max(trace, key=lambda one: one.n_events if one.n_events < 60 else 0)) + "\n"


def figure(study: str, arm: str, field: str, form: str) -> str:
    """A figure of a study as its results have it: the mean over seeds, or the least or the most of them, in a
    format of Python, or in %.

    >>> figure("parl", "constant", "short", "%"), figure("scale", "same-prefix", "share[3]", "max .2f")
    ('44.1 %', '0.77')
    """
    arms = msgspec.json.decode((DOCS / "studies" / f"{study}.json").read_bytes())["arms"]
    name, _, index = field.removesuffix("]").partition("[")
    values = [one[name][int(index)] if index else one[name] for one in arms[arm]]
    *how, form = form.split()
    value = {"min": min, "max": max}[how[0]](values) if how else sum(values) / len(values)
    return f"{100 * value:.1f} %" if form == "%" else f"{value:{form}}"


def filled(text: str) -> str:
    """The page with its generated tables as the code has them now, and its figures as the studies have them."""
    tables = {
        "fields": fields,
        "columns": columns,
        "rules": rules,
        "worlds": world_table,
        "scores": scores,
        "metrics": metrics,
        "detectors": detectors,
        "methods": methods,
        "steps": steps,
    }

    def table(found: re.Match[str]) -> str:
        words = found[1].split()
        made = parameters(words[1]) if words[0] == "world" else tables[words[0]]()
        return f"<!-- generated: {found[1]} -->\n{made}\n<!-- end -->"

    def inline(found: re.Match[str]) -> str:
        return f"<!-- study: {found[1]} -->{figure(*(word.strip() for word in found[1].split('|')))}<!-- end -->"

    text = re.sub(r"<!-- generated: ([\w ]+) -->(?:\n.*?<!-- end -->)?", table, text, flags=re.DOTALL)
    return re.sub(r"<!-- study: ([^>\n]+?) -->(?:[^<\n]*<!-- end -->)?", inline, text)


def main() -> None:
    from podium import load

    for page in sorted(DOCS.rglob("*.md")):
        page.write_text(filled(page.read_text()))
    for name in worlds():
        (DOCS / "envs" / f"{name}.svg").write_text(episode_picture(name))
    run = DOCS.parent / "out/demo-run"
    if run.exists():
        (DOCS / "demo.svg").write_text(picture(load(run)) + "\n")


if __name__ == "__main__":
    main()
