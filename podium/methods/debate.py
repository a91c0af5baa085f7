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
from podium.methods.method import Method, add
from podium.registry import register
from podium.rewards.individual import channel_of_events
from podium.rewards.process import answers
from podium.trace.columns import I, Trace
from podium.trace.vocabulary import edge, event

__all__ = [
    "game",
    "majority_mixture",
    "meta_actions",
    "per_critique",
    "rounded",
    "shaped_by_history",
    "shaped_by_tree",
]

MESSAGE, TEMPORAL = event("message"), edge("temporal")


@register("key")
def game(trace: Trace, unit: str) -> I:
    """The world it is played in; runs that name none are of one."""
    return trace.env_n.codes[units.rollouts(trace, unit)].astype(np.int64) + 1


@register("step")
def per_critique(credit: Credit, channel: str = "verdict") -> Credit:
    """What a message gets out of one verdict, from what it gets out of all (`critique`), between 0 and 1.

        r = v / n + 1/2 where n pairs of a solution and a critique hold the message: mean(τ) for a solution, 1 -
            mean(τ) for a critique
        r = 0 where none does, -1 if it is invalid too: a judge whose verdict cannot be read

    pays: messages.   needs: edges from solutions to critiques.   from: CoMAS, where τ is the verdict on a scale
    from 0 to 1.
    """
    if credit.unit != "message":
        raise BadCredit(f"per_critique pays messages, not {credit.unit}")
    trace, rows = credit.trace, credit.rows
    says_e = trace.type_e == MESSAGE
    about = says_e[trace.src_x] & (says_e & ~np.isnan(channel_of_events(trace, channel)))[trace.dst_x]
    about &= (trace.type_x != TEMPORAL) & (trace.agent_e[trace.src_x] != trace.agent_e[trace.dst_x])
    pair = np.unique(trace.dst_x[about].astype(np.int64) * trace.n_events + trace.src_x[about])
    both = np.concatenate(np.divmod(pair, trace.n_events))
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

        margin: r + a (r - Q),     quality: r + a (Q r - (1 - Q) (1 - r)),     Q = mean of the rewards before it in
            its chain

    Turns that were not scored are no history; without one r stays. With by="rollout" the history is all agents'.
    from: MARTI.
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

    none (NaN) for messages in between, for those that state no `value` and in runs without one majority; times the
    credit.   pays: messages.   needs: votes, and the label `value` on messages.   from: Multiagent Finetuning.
    """
    if credit.unit != "message":
        raise BadCredit(f"majority_mixture pays messages, not {credit.unit}")
    trace = credit.trace
    answer, most = _answers(trace, credit.rows), _majority(trace)[credit.rollout]
    line = timeline(credit.of(np.zeros(len(answer))), "agent")
    when, agent = line.at, take(trace.agent_e, credit.rows)
    said = np.flatnonzero((answer >= 0) & (most >= 0) & (when >= 0) & (agent >= 0))
    said = said[np.lexsort((when[said], agent[said]))]
    opens, closes = changes(agent[said]), ends(agent[said])
    right = answer[said] == most[said]
    was_right = right[np.maximum.accumulate(np.where(opens, np.arange(len(said)), 0))]
    critic = np.where(right, np.where(was_right, 1.0 - w, w), 0.0)
    share = np.full(len(answer), np.nan)
    share[said] = np.where(opens, right, np.where(closes, critic, np.nan))
    return credit.of(credit.value * share)


def _answers(trace: Trace, rows: I) -> NDArray[np.int64]:
    """The value that each row states, as a code among the values that are voted for; -1 where it states none."""
    if "value" not in trace.extra_e:
        return unset(len(rows))
    column = trace.extra_e["value"]
    place = {word: code for code, word in enumerate(trace.value_v.words)}
    codes = np.array([*(place.get(_plain(word), len(place)) for word in column.words), -1], np.int64)
    found: NDArray[np.int64] = codes[column.codes[rows]]
    return found


def _plain(word: str) -> str:
    """A JSON string without its quotes; any other JSON as it is written."""
    said = msgspec.json.decode(word)
    return said if isinstance(said, str) else word


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


def _sage() -> str:
    """The role table of SAGE.

    challenger: (s_q + r_d + r_f) / 3 if s_q ≥ 0.7 and its check passes, else (s_q + r_f) / 2,   r_d = 1 - mean
    solver s_gt planner: (s_p + r_f) / 2,   solver: (s_p [s_p ≥ 0.3] + s_gt + r_f) / 3,   critic: nothing

    with the channels `score` (what the critic gave), `format`, `correct` (s_gt, of solvers) and `verified` (of
    challengers).
    """
    quality, form = "individual('score')", "individual('format')"
    harder = f"at(one / 3 - of_role('solver', 'correct') / 3, 'agent') - {quality} / 6 - {form} / 6"
    plan = "at(of_role('planner', 'score'), 'agent')"
    pays = {
        "challenger": f"{quality} / 2 + {form} / 2 + gate(gate({harder}, {quality}, 0.7), individual('verified'))",
        "planner": f"{quality} / 2 + {form} / 2",
        "solver": f"gate({plan} / 3, {plan}, 0.3) + individual('correct') / 3 + {form} / 3",
    }
    return " + ".join(f"for_role({pay}, {role!r})" for role, pay in pays.items())


TABLE = (
    Method(
        name="comas",
        reward="critique",
        credit='per_critique() >> whiten(by="agent")',
        unit="message",
        schedule="decentralised",
        needs=("judge",),
        source="CoMAS, ICLR 2026",
        unknown="the penalty -beta log(pi / ref) inside the reward to go: a trace holds no reference policy",
        conflicts="a solution with several critiques is one sample here, with their mean; in the code it is one "
        "sample for each",
        counts="rows",
        scales=False,
    ),
    Method(
        name="mae",
        reward="mae",
        credit='only("role", ("proposer", "solver", "judge")) >> whiten(by="role")',
        unit="agent",
        update="clip(token) + entropy(by=role)",
        schedule="joint(roles=one_after_the_other)",
        needs=("roles", "judge"),
        source="Multi-Agent Evolve, arXiv 2510.23595",
        conflicts="the judge is paid for its format alone, by design",
        counts="agents",
    ),
    Method(
        name="sage",
        reward=_sage(),
        credit='only("role", ("challenger", "planner", "solver")) >> whiten(by="role")',
        unit="agent",
        needs=("roles", "judge"),
        source="SAGE, OpenReview 7sOeRzBzjB",
        known="partial",
        unknown="the weights of the planner's and the solver's terms (equal here)",
        counts="agents",
    ),
    Method(
        name="mpdf",
        reward="correctness_delta",
        credit='to("turn") + revote() >> meta_actions() >> rank_gaussian(by="task", tau=0.8)',
        unit="turn",
        update="match_ranks",
        schedule="offline",
        needs=("group", "votes", "labels"),
        source="Learning to Deliberate (MPDF and SoftRankPO), arXiv 2509.03817",
        conflicts="a group is all meta-actions of a task",
        counts="rows",
        scales=False,
    ),
    Method(
        name="magic",
        reward='for_role(outcome("harm") + outcome("refusal"), "defender") + for_role(individual("format") - '
        'outcome("harm") - outcome("refusal"), "attacker")',
        credit='only("role", ("defender", "attacker")) >> zscore(by=("task", "role"))',
        unit="agent",
        update="clip(turn)",
        schedule="alternate(lead, others, every=15)",
        needs=("group", "roles", "judge"),
        source="MAGIC, arXiv 2602.01539; harm is +-1, refusal +-0.5, format +-1, its other terms are off by "
        "default",
        counts="agents",
    ),
    Method(
        name="spiral",
        reward="individual",
        credit='minus("ema") >> to("turn") >> decay("rollout")',
        unit="agent",
        pays="turn",
        update="skip_zeros >> clip(token)",
        schedule="joint(self_play=True)",
        needs=("history",),
        source="SPIRAL, ICLR 2026, gamma 1; `ema` is b_p <- 0.95 b_p + 0.05 R_p, from 0, as it was before the run",
        conflicts="the code keeps one average a player, the paper one for each game and player: whoever stamps "
        "the column says which",
        counts="agents",
        scales=False,
    ),
    Method(
        name="marshal",
        reward='step(unstated=0.0, end="team")',
        credit='center(by=("game", "player")) >> whiten() >> togo("player") >> rounded() >> center(by=("game", '
        '"player"), count="unique") >> whiten()',
        unit="turn",
        update="dual_clip(token) + kl(0.2)",
        schedule="joint(self_play=True)",
        source="MARSHAL, ICLR 2026",
        conflicts="the code whitens over tokens, so that long turns count more; here every turn counts once",
        counts="rows",
    ),
    *(
        Method(
            name=f"marti_{_how}",
            reward="step",
            credit=f'shaped_by_history("{_how}") >> whiten()',
            unit="turn",
            schedule="asynchronous(buffer=agent)",
            source="MARTI, its reward shaping, with REINFORCE++",
            unknown="AgentPRM and TTRL, whose rewards are fitted or voted outside: channels for `step`",
            conflicts="what a first turn is compared with is not said: it keeps its reward; the variants with "
            'outcome add 0.5 * scored("outcome"), debates take by="rollout"',
            counts="rows",
            scales=_scales,
        )
        for _how, _scales in (("margin", True), ("quality", False))
    ),
    Method(
        name="mars2",
        reward='step("tests")',
        credit='once(zscore(by="tree"))',
        unit="turn",
        update="truncated(2) >> clip(sequence)",
        schedule="asynchronous(tree=thompson)",
        needs=("branches",),
        source="MARTI-MARS2, arXiv 2602.07848",
        conflicts="the paper's side: a z-score over all nodes of the tree; the code shapes rewards first "
        "(mars2_shaped)",
        counts="rows",
    ),
    Method(
        name="mars2_shaped",
        reward='step("tests")',
        credit='shaped_by_tree() >> once(zscore(by="tree"))',
        unit="turn",
        update="truncated(2) >> clip(sequence)",
        schedule="asynchronous(tree=thompson)",
        needs=("branches",),
        source="MARTI-MARS2, its code",
        conflicts="the code shapes in place, so that a child sees its parent's shaped reward if that came first; "
        "here it sees the raw one, in whatever order",
        counts="rows",
    ),
    Method(
        name="debate_as_reward",
        reward="panel",
        credit='center(by="task")',
        update="mean_over(none) >> clip(token)",
        needs=("group", "votes"),
        source="Debate as Reward, arXiv 2604.16723",
        known="partial",
        unknown="the panel's protocol and prompts: its votes are read from the trace, a majority of them is 1",
    ),
    Method(
        name="multiagent_finetuning",
        reward="one",
        credit="majority_mixture()",
        unit="message",
        update="sft(on=examples)",
        schedule="offline(rounds=3)",
        needs=("votes", "labels"),
        source="Multiagent Finetuning, ICLR 2025",
        known="partial",
        unknown="summaries between rounds and the fine-tuning itself, which is no RL; ties of the vote, which "
        "give none here",
        counts="rows",
    ),
)

for _row in TABLE:
    add(_row)
