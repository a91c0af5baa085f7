"""Methods for teams that argue, judge or play against each other, and the steps that are theirs alone."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from podium.credit.baselines import minus_history
from podium.credit.credit import BadCredit, Credit
from podium.credit.forest import contexts, nodes
from podium.credit.keys import By, groups, numbered_together
from podium.credit.orders import before, timeline
from podium.graph import units
from podium.graph.grouping import any_by, changes, count_by, count_of, ends, last_by, ratio, take, total_by, unset
from podium.registry import register
from podium.rewards.debate import joined
from podium.rewards.individual import channel_of_events
from podium.rewards.process import answers
from podium.trace.columns import I, Trace
from podium.trace.vocabulary import event

__all__: list[str] = []

MESSAGE = event("message")


@register("key")
def game(trace: Trace, unit: str) -> I:
    """The world it is played in; runs that name none are of one."""
    return trace.env_n.codes[units.rollouts(trace, unit)].astype(np.int64) + 1


@register("step")
def per_critique(credit: Credit, channel: str = "verdict") -> Credit:
    """What a message gets out of one verdict, from what it gets out of all (`critique`), between 0 and 1.

        r = v / n + 1/2 where n pairs of a solution and a critique hold the message: mean(τ), of a critique 1 - it
        r = 0 where none does, -1 if it is invalid too: a judge whose verdict cannot be read

    pays: messages.   needs: edges from solutions to critiques.   from: CoMAS, τ the verdict from 0 to 1.
    """
    if credit.unit != "message":
        raise BadCredit(f"per_critique pays messages, not {credit.unit}")
    trace, rows = credit.trace, credit.rows
    says_e = trace.type_e == MESSAGE
    about_x = says_e[trace.src_x] & (says_e & ~np.isnan(channel_of_events(trace, channel)))[trace.dst_x]
    both = np.concatenate(joined(trace, about_x))
    n = np.bincount(both, minlength=trace.n_events)[rows]
    neither = np.where(trace.valid_e[rows] == 0, -1.0, 0.0) + 0.0 * credit.value
    return credit.of(np.where(n > 0, ratio(credit.value, n) + 0.5, neither))


@register("step")
def meta_actions(credit: Credit, channel: str = "correct") -> Credit:
    """Credit for turns in which an agent answers again: it persists, refines or concedes; none (NaN) for others.

    needs: how right answers are (`channel`).   from: Learning to Deliberate (MPDF).
    """
    if credit.unit != "turn":
        raise BadCredit(f"meta_actions are turns, not {credit.unit}")
    rows, _ = answers(credit.trace, channel)
    turn = units.place(credit.trace, "turn")[rows]
    again = any_by(turn, ~changes(credit.trace.agent_e[rows]), len(credit.value))
    return credit.of(np.where(again, credit.value, np.nan))


@register("step")
def shaped_by_history(
    credit: Credit, how: Literal["margin", "quality"] = "margin", a: float = 0.5, by: By = ("rollout", "agent")
) -> Credit:
    """A reward that looks back: more for doing better than before.

        margin: r + a (r - Q),   quality: r + a (Q r - (1 - Q) (1 - r)),   Q = mean of those before it in its chain

    Without a scored turn before it r stays. With by="rollout" the history is all agents'.   from: MARTI.
    """
    if how not in ("margin", "quality"):
        raise BadCredit(f"how must be margin or quality, got {how!r}")
    r, scored = credit.value, (~np.isnan(credit.value)).astype(np.float64)
    sums, counts = (x - minus_history(credit.of(x), by, "nan").value for x in (np.nan_to_num(r), scored))
    q = np.divide(sums, counts, out=np.full(len(r), np.nan), where=counts > 1e-12)  # both over all that came before
    more = r - q if how == "margin" else q * r - (1.0 - q) * (1.0 - r)
    return credit.of(np.where(np.isnan(q), r, r + a * more))


@register("step")
def rounded(credit: Credit, digits: int = 9) -> Credit:
    """To so many digits after the point, so that sums that were made in another order are the same number.

    from: MARSHAL, which counts equal values once.
    """
    return credit.of(np.round(credit.value, digits))


@register("step")
def shaped_by_tree(credit: Credit, g: float = 0.5, l: float = 0.5) -> Credit:
    """A reward that looks at its parent and siblings in a tree: more for doing better than they.

        r + g (r - [(1 - l) r(parent) + l mean r(other siblings)])

    Where only one of the two is there it counts alone; without both r stays. Siblings are the nodes that branched
    off at one place, each once. The parent's reward is the unshaped one.   from: MARTI-MARS2.
    """
    r, batch = credit.value, groups(credit, "batch")
    node = numbered_together(batch, nodes(credit.trace, credit.rows))
    place = numbered_together(batch, contexts(credit.trace, credit.rows))
    first = np.unique(np.where(np.isnan(r), -1, node), return_index=True)[1]
    first = first[(node[first] >= 0) & ~np.isnan(r[first])]
    n = count_of(place) + 1
    total, many = total_by(place[first], r[first], n), np.bincount(place[first], minlength=n)
    with np.errstate(divide="ignore", invalid="ignore"):
        siblings = np.where(many[place] > 1, (total[place] - r) / (many[place] - 1), np.nan)
    above = before(timeline(credit, "rollout"), r)
    usual = np.where(np.isnan(siblings), above, np.where(np.isnan(above), siblings, (1 - l) * above + l * siblings))
    return credit.of(np.where(np.isnan(usual), r, r + g * (r - usual)))


@register("step")
def majority_mixture(credit: Credit, w: float = 0.5) -> Credit:
    """How much an answer counts among the examples that its agent learns from, by the answer that most votes named.

        an agent's first answer (it generates): 1 if it is the majority's, else 0
        its last, if another (it criticises): w if it is and the first was not, 1 - w if both are, 0 if it is not

    Times the credit; NaN for messages in between or without a `value`, and in runs without one majority.
    pays: messages.   needs: votes, and the label `value` on messages.   from: Multiagent Finetuning.
    """
    if credit.unit != "message":
        raise BadCredit(f"majority_mixture pays messages, not {credit.unit}")
    trace = credit.trace
    answer, most = _answers(trace, credit.rows), _majority(trace)[credit.rollout]
    line = timeline(credit.of(np.zeros(len(answer))), "agent")
    when, agent = line.at, take(trace.agent_e, credit.rows)
    stated = np.flatnonzero((answer >= 0) & (most >= 0) & (when >= 0) & (agent >= 0))
    stated = stated[np.lexsort((when[stated], agent[stated]))]
    opens, closes = changes(agent[stated]), ends(agent[stated])
    right = answer[stated] == most[stated]
    was_right = right[np.maximum.accumulate(np.where(opens, np.arange(len(stated)), 0))]
    critic = np.where(right, np.where(was_right, 1.0 - w, w), 0.0)
    share = np.full(len(answer), np.nan)
    share[stated] = np.where(opens, right, np.where(closes, critic, np.nan))
    return credit.of(credit.value * share)


def _answers(trace: Trace, rows: I) -> NDArray[np.int64]:
    """The value that each row states, as a code among the values that are voted for; -1 where it states none."""
    if "value" not in trace.extra_e:
        return unset(len(rows))
    column = trace.extra_e["value"]
    place = {word: code for code, word in enumerate(trace.value_v.words)}
    codes = np.array([*(place.get(_plain(word), len(place)) for word in column.words), -1], np.int64)
    answer: NDArray[np.int64] = codes[column.codes[rows]]
    return answer


def _plain(word: str) -> str:
    """A JSON string without its quotes; any other JSON as it is written."""
    value = msgspec.json.decode(word)
    return value if isinstance(value, str) else word


def _majority(trace: Trace) -> NDArray[np.int64]:
    """For each run the value with most votes at its last aggregate, as a code; -1 for none or a tie."""
    n, words = len(trace), len(trace.value_v.words)
    last_n = unset(n)
    last_n[trace.rollout_e[trace.event_v]] = trace.event_v  # rows ascend, so the last one stays
    votes = np.flatnonzero((trace.event_v == last_n[trace.rollout_e[trace.event_v]]) & (trace.value_v.codes >= 0))
    run = trace.rollout_e[trace.event_v[votes]].astype(np.int64)
    key, many = np.unique(run * words + trace.value_v.codes[votes], return_counts=True)
    most_n = np.zeros(n, np.int64)
    np.maximum.at(most_n, key // words, many)
    wins = many == most_n[key // words]
    alone = count_by(key // words, wins, n) == 1
    return np.where(alone, take(key % words, last_by(key // words, wins, n)), -1)
