"""Methods that compare a run with other runs of the same task.

The rows of the single-agent substrate read alike: an estimate for each run, copied to the tokens that the policy
sampled, and how tokens count in the loss. Up to `to("token")` they hold for traces that do not record tokens.
"""

from functools import partial

from podium.methods.method import Method, add

__all__: list[str] = []


_EPISODE = '(to("team", "sum") >> {0}(by="task", alone="raw") >> to("turn"))'
_STEP = '(togo("rollout", 0.95) >> {0}(by=("task", "anchor"), alone="zero"))'

SingleAgent = partial(Method, pays="token", needs=("group", "tokens"))

TABLE = (
    SingleAgent(
        name="grpo",
        credit='zscore(by="task", alone="raw") >> to("token") >> sampled >> weigh("rollout")',
        source="Shao et al. 2024, arXiv 2402.03300; ddof, eps and the rule for a group of one as in verl",
        conflicts="the paper averages over the tokens of a run and then over runs, verl over all tokens: the "
        "paper's",
    ),
    SingleAgent(
        name="dr_grpo",
        credit='center(by="task", alone="raw") >> to("token") >> sampled >> weigh("constant", longest=3000)',
        source="Liu et al. 2025, arXiv 2503.20783; the constant is the longest answer allowed, for which 3000 "
        "stands here; a group of one as in verl",
        conflicts="for a group of one the formula gives 0, verl the reward: verl's",
        counts="tokens",
    ),
    SingleAgent(
        name="rloo",
        credit='leave_one_out(by="task", alone="raw") >> to("token") >> sampled >> weigh("root")',
        update="reinforce",
        source="Ahmadian et al. 2024, arXiv 2402.14740; a group of one as in verl",
        conflicts="the formula has nothing to say of a group of one, verl gives the reward: verl's",
    ),
    Method(
        name="reinforce_pp",
        credit='to("token") >> sampled >> whiten(by="batch") >> weigh("token")',
        pays="token",
        needs=("tokens",),
        source="Hu 2025, arXiv 2501.03262",
        unknown="the penalty on the divergence from a reference policy inside the reward: a trace has no "
        "reference policy",
        counts="tokens",
    ),
    SingleAgent(
        name="reinforce_pp_baseline",
        credit='center(by="task", alone="raw") >> to("token") >> sampled >> whiten(by="batch") >> weigh("token")',
        source="Hu 2025, arXiv 2501.03262; a group of one as in verl",
        counts="tokens",
    ),
    Method(
        name="remax",
        credit='minus("greedy") >> to("token") >> sampled >> weigh("root")',
        pays="token",
        update="reinforce",
        needs=("greedy", "tokens"),
        source="Li et al. 2024, arXiv 2310.10505; what the greedy run of the same task earned is the run's "
        "channel `greedy`",
        scales=False,
    ),
    SingleAgent(
        name="dapo",
        reward="outcome - overlong(16384.0, 4096.0)",
        credit='zscore(by="task") >> drop_even("outcome", by="task") >> to("token") >> sampled >> weigh("token")',
        update="clip(token, 0.2, 0.28)",
        schedule="joint(redraw=all_or_none)",
        source="Yu et al. 2025, arXiv 2503.14476",
        counts="tokens",
    ),
    SingleAgent(
        name="gspo",
        credit='zscore(by="task", alone="raw") >> to("token") >> sampled >> weigh("rollout")',
        update="clip(sequence)",
        source="Zheng et al. 2025, arXiv 2507.18071: GRPO's credit, and a ratio of whole sequences in the update",
    ),
    SingleAgent(
        name="pass_at_k",
        credit='best_only(by="task") >> to("token") >> sampled >> weigh("token")',
        source="Pass@k GRPO, arXiv 2503.19595, as verl has it, which refuses a group of one",
        conflicts="verl divides by the deviation of the group unless told not to; we do not unless told: "
        "best_only(std=True)",
        counts="tokens",
    ),
    SingleAgent(
        name="opo",
        credit='length_weighted(by="task", alone="raw") >> to("token") >> sampled >> weigh("token")',
        update="reinforce",
        source="Hao et al. 2025, arXiv 2505.23585; a group of one as in verl",
        counts="tokens",
    ),
    Method(
        name="gigpo",
        reward='step(unstated=0.0, end="team")',
        credit=" + ".join(part.format("center") for part in (_EPISODE, _STEP)),
        unit="turn",
        needs=("group", "labels"),
        source="Feng et al. 2025, arXiv 2505.10978, mode mean_norm; anchors are the label `anchor`, equal where "
        "states are",
        conflicts="a run alone counts in full and a state alone for nothing, as the code has both; where agents "
        "act in one step of the world, state its reward once",
        counts="rows",
    ),
    Method(
        name="gigpo_std",
        reward='step(unstated=0.0, end="team")',
        credit=" + ".join(part.format("zscore") for part in (_EPISODE, _STEP)),
        unit="turn",
        needs=("group", "labels"),
        source="Feng et al. 2025, arXiv 2505.10978, mode mean_std_norm; else as gigpo",
        conflicts="as gigpo",
        counts="rows",
    ),
    Method(
        name="dr_mas",
        reward="outcome - 0.1 * invalid_turns",
        credit='zscore(by=("task", "agent"), count="row", alone="raw")',
        unit="turn",
        schedule="joint(optimizer=agent)",
        needs=("group",),
        source="Dr. MAS (langfengQ/DrMAS); the fine is 0.1 in mathematics, 0.01 in search",
        conflicts="the text changes the key only; the code also counts invocations where GRPO counts runs: the "
        "code's",
        counts="rows",
    ),
)

for _row in TABLE:
    add(_row)
