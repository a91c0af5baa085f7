"""Who failed, and at which step? What the structure of a run alone says, on Who&When, beside trivial guesses:
`python -m bench.attribution [--judge FILE.py:NAME] [--json]`.

Structure is who spoke when: no word of a message is read. The fitted guess is a logistic regression over features of
each message, trained on the other questions in ten folds. A judge is a function from a run, with its content, to
the row of the message that is to blame, or None.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.exchange import LOGS
from podium.interval import estimate
from podium.outside import load_module
from podium.trace import files
from podium.trace.columns import Trace

__all__ = ["FOLDS", "Case", "case_of", "cases", "features", "guesses", "random_guess"]

FOLDS, SHRINK, STEPS = 10, 3.0, 400
TERMINAL = "Computer_terminal"  # runs code and writes nothing of its own
Answer = tuple[int, int]  # an agent and a step
Guess = Callable[["Case"], Answer]


class Case(NamedTuple):
    """A failed run: who spoke at each step, and the label."""

    question: str
    speakers: tuple[int, ...]  # numbered by their first word
    blamed: int  # the step that people hold responsible
    agent: int  # and the agent, which is not always who spoke there
    trace: Trace


def case_of(trace: Trace) -> Case | None:
    """None where a run has no label."""
    label = json.loads(trace.params_n[0] or "{}").get("label")
    if not isinstance(label, dict) or "step" not in label:
        return None
    names = trace.name_a.strings()
    speakers = tuple(trace.agent_e.tolist())
    agent = names.index(label["agent"]) if label["agent"] in names else -1
    return Case(trace.task_id_n[0] or "", speakers, int(label["step"]), agent, trace)


def cases(keep: bool = False) -> list[Case]:
    """The labelled runs of ../shared/data/logs/whowhen, if they are here."""
    folder = LOGS / "whowhen"
    reads = files.read(folder, keep=keep) if folder.is_dir() else ()
    some = (case_of(read.trace) for read in reads if read.trace is not None)
    return [case for case in some if case is not None]


def at(case: Case, step: int) -> Answer:
    """A step and who spoke there; the last one where the run is shorter."""
    step = min(step, len(case.speakers) - 1)
    return case.speakers[step], step


def most_frequent(case: Case) -> Answer:
    """The first word of who spoke most, the terminal that runs code left out."""
    name = case.trace.name_a
    speakers = [one for one in case.speakers if name[one] != TERMINAL] or list(case.speakers)
    return at(case, case.speakers.index(Counter(speakers).most_common(1)[0][0]))


def constant(step: int) -> Guess:
    """The same step in every run."""
    return lambda case: at(case, step)


def random_guess(case: Case) -> tuple[float, float]:
    """How often a random agent, and a random step, is right."""
    return 1 / len(set(case.speakers)), 1 / len(case.speakers)


def features(case: Case) -> NDArray[np.float64]:
    """Of each step: where it lies in the run and in its agent's own words, how much its agent speaks, and whether
    that agent opened or closed the run, or speaks again at once."""
    n, speakers = len(case.speakers), np.array(case.speakers)
    share = np.bincount(speakers)[speakers] / n
    own = np.array([int((speakers[:i] == speakers[i]).sum()) for i in range(n)])
    step = np.arange(n)
    columns = [
        step == 0, step == 1, step == 2, step / n, np.log1p(step), share, own == 0, speakers == speakers[0],
        speakers == speakers[-1], step == n - 1, np.append(speakers[1:] == speakers[:-1], False),
        share == share.max(),
    ]  # fmt: skip
    return np.stack([np.asarray(column, np.float64) for column in columns], axis=1)


def fitted(train: Sequence[Case]) -> Guess:
    """The likeliest step, and the agent whose steps are likeliest together, where a softmax over the steps of a run
    was fitted to the labels."""
    tables = [features(case) for case in train]
    weight = np.zeros(tables[0].shape[1])
    for _ in range(STEPS):
        slope = -SHRINK * weight
        for table, case in zip(tables, train, strict=True):
            score = table @ weight
            chance = np.exp(score - score.max())
            slope += table[case.blamed] - chance @ table / chance.sum()
        weight += slope / len(train)

    def guess(case: Case) -> Answer:
        score = features(case) @ weight
        chance = np.exp(score - score.max())
        return int(np.argmax(np.bincount(case.speakers, chance))), int(np.argmax(chance))

    return guess


def out_of_fold(all_cases: Sequence[Case], fit: Callable[[Sequence[Case]], Guess]) -> list[Answer]:
    """The guess for every case by what was fitted to other questions."""
    questions = sorted({case.question for case in all_cases})
    fold = {question: i % FOLDS for i, question in enumerate(questions)}
    guessers = [fit([c for c in all_cases if fold[c.question] != i]) for i in range(min(FOLDS, len(questions)))]
    return [guessers[fold[case.question]](case) for case in all_cases]


def best_constant(train: Sequence[Case]) -> Guess:
    return constant(Counter(case.blamed for case in train).most_common(1)[0][0])


def guesses(all_cases: Sequence[Case]) -> dict[str, list[Answer]]:
    """What each way guesses, a case each."""
    return {
        "first speaker": [at(case, 0) for case in all_cases],
        "constant step 1": [constant(1)(case) for case in all_cases],
        "best constant step of the other questions": out_of_fold(all_cases, best_constant),
        "most frequent speaker, first word": [most_frequent(case) for case in all_cases],
        "last speaker": [at(case, len(case.speakers) - 1) for case in all_cases],
        "structure, fitted to the other questions": out_of_fold(all_cases, fitted),
    }


def accuracy(all_cases: Sequence[Case], answers: Sequence[Answer | None]) -> dict[str, Any]:
    """How often the agent, and the step, was right, with 95 % intervals."""
    agent = [a is not None and a[0] == c.agent for c, a in zip(all_cases, answers, strict=True)]
    step = [a is not None and a[1] == c.blamed for c, a in zip(all_cases, answers, strict=True)]
    rows = {}
    for name, hits in (("agent", agent), ("step", step)):
        mean, low, high, *_ = estimate(np.array(hits, float))
        rows[name] = {"share": round(float(mean), 3), "low": round(float(low), 3), "high": round(float(high), 3)}
    return rows


def judged(step: int | None, case: Case) -> Answer | None:
    return None if step is None else at(case, step)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--judge", metavar="FILE.py:NAME")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    every = cases(keep=args.judge is not None)
    if not every:
        raise SystemExit("the labelled runs (../shared/data/logs/whowhen) are not here")
    chance = [random_guess(case) for case in every]
    agent, step = (round(float(np.mean(part)), 3) for part in zip(*chance, strict=True))
    rows: dict[str, Any] = {"random": {"agent": {"share": agent}, "step": {"share": step}}}
    rows |= {name: accuracy(every, steps) for name, steps in guesses(every).items()}
    if args.judge:
        where, _, name = args.judge.rpartition(":")
        judge = getattr(load_module(where), name)
        rows[f"judge {args.judge}"] = accuracy(every, [judged(judge(case.trace), case) for case in every])
    if args.json:
        print(json.dumps({"runs": len(every), "questions": len({c.question for c in every}), "rows": rows}))
        return
    print(f"{len(every)} runs of {len({case.question for case in every})} questions")
    for name, row in rows.items():
        cells = [
            f"{part} {one['share']:.3f}" + (f" [{one['low']:.3f}, {one['high']:.3f}]" if "low" in one else "")
            for part, one in row.items()
        ]
        print(f"{name:45} {'   '.join(cells)}")


if __name__ == "__main__":
    main()
