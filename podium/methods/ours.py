"""Methods of our own, for what the published ones leave open. They are named for what they do.

Branches force the option that was not taken, so that the effect of a decision is identified and not only correlated
with the outcome.
"""

from functools import partial

from podium.methods.method import Method, add

__all__: list[str] = []

Ours = partial(Method, update="any", schedule="any")

TABLE = (
    Ours(
        name="branching",
        credit='same_prefix(same="option")',
        unit="orchestrator",
        needs=("branches",),
        source="ours: every option of a decision forced at the same prefix; an option is worth what it beat the "
        "mean of the others by",
    ),
    *(
        Ours(
            name=f"{_kind}_branching",
            credit=f'same_prefix(same="option") >> only("decision", "{_kind}")',
            unit="orchestrator",
            needs=("branches",),
            source=f"ours: branching at decisions to {_kind}, {_what}; "
            "intervals by `podium.credit.branches.effects`",
        )
        for _kind, _what in (("spawn", "spawn against no-op"), ("stop", "stop against going on"))
    ),
    Ours(
        name="branching_policy",
        credit='same_prefix("policy", same="option")',
        unit="orchestrator",
        needs=("branches", "labels"),
        source="ours: branching against what the policy would have earned there, COMA's baseline with runs in "
        "place of a critic",
    ),
    Ours(
        name="branching_turns",
        credit='same_prefix("policy", same="option")',
        unit="turn",
        needs=("branches", "labels"),
        source="ours: branching_policy for everything that an agent of a live team says, be it a decision, a tool "
        "call or an answer",
    ),
    Ours(
        name="stopping",
        credit="stopping()",
        unit="orchestrator",
        needs=("judge",),
        source="ours: what going on earned beyond the answer at hand, from one run whose intermediate answers are "
        "graded (`graded`)",
        scales=False,
    ),
    Ours(
        name="stopping_best",
        credit='stopping(rule="best", by="task")',
        unit="orchestrator",
        needs=("group", "judge"),
        source="ours: the same against the best rule for stopping, by backward induction over the other runs of "
        "the task and not by a peek at a run's own best stop; after Longstaff & Schwartz 2001",
        scales=False,
    ),
    Ours(
        name="revote",
        credit="revote()",
        unit="agent",
        needs=("votes",),
        source="Wolpert & Tumer 2002 and MPDF: the consensus less that without an agent's votes, exact and "
        "without another run",
    ),
    Ours(
        name="closed_difference",
        credit='closed(masked("agent"))',
        pays="agent",
        needs=("masks",),
        source="ours: difference rewards, and what they leave of the team's reward shared equally, so that a "
        "run's credit adds up to it",
    ),
    Ours(
        name="shapley",
        credit="shapley()",
        pays="agent",
        needs=("masks",),
        source="Shapley 1953, over runs in which coalitions are masked",
    ),
    Ours(
        name="spawn_shapley",
        credit="spawn_shapley()",
        pays="agent",
        needs=("masks", "spawns"),
        source="ours: Shapley values over the orders in which nobody comes before the agent that spawned them",
    ),
    Ours(
        name="prefix_value",
        credit='decay(gamma=0.0) >> td("value_graph")',
        unit="turn",
        needs=("critic",),
        source="ours: how much a turn raised V(prefix), a value of the graph so far, in the column `value_graph`; "
        "the last turn is compared with the outcome",
        counts="rows",
        scales=False,
    ),
)

for _row in TABLE:
    add(_row)
