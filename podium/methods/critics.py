"""Methods that compare with what a fitted critic expected.

What a critic says is a channel of the turn's first event: `value_joint` of one that reads everything, `value_local`
of one that reads what the agent does, `value` of one that reads the text so far. For tokens it is the label
`values`, one number a token.
"""

from podium.methods.method import Method, add

__all__: list[str] = []


_ZEROS = (
    "the code leaves advantages of exactly 0 out of mean and deviation, since padding is 0 there; "
    "there is no padding here: they count"
)

TABLE = (
    *(
        Method(
            name=_name,
            reward='step(unstated=0.0, end="team", each="agent")',
            credit=f'td("{_value}", "agent", gamma=0.9)',
            unit="turn",
            update="reinforce",
            needs=("critic",),
            source=f"CoLLM (OpenMLRL/CoMLRL): one step ahead of {_text}",
            conflicts="the code whitens over its buffer by default, the formula does not: the formula's; its "
            "discount is 0.9 or 1 by version and trainer: 0.9 for all of the family, so that only the critic "
            "differs",
            counts="rows",
            scales=False,
        )
        for _name, _value, _text in (
            ("collm_cc", "value_joint", "one critic of the joint history (CoMLRL's MAAC)"),
            ("collm_dc", "value_local", "a critic for each agent's own history (CoMLRL's IAC)"),
        )
    ),
    *(
        Method(
            name=_name,
            reward='step(unstated=0.0, end="team", each="agent")',
            credit=f'gae("{_value}", "agent", 0.99, 0.95) >> zscore(by="batch", ddof=0, eps=1e-5)',
            unit="turn",
            needs=("critic",),
            source=f"{_text}; scaled over the batch as marlbenchmark/on-policy does",
            counts="rows",
            scales=False,
        )
        for _name, _value, _text in (
            (
                "ippo",
                "value_local",
                "Yu et al. 2022, arXiv 2103.01955, and de Witt et al. 2020: a value of what the agent sees",
            ),
            ("mappo", "value_joint", "Yu et al. 2022, arXiv 2103.01955: a value of the joint state"),
        )
    ),
    Method(
        name="marft_action",
        reward='step(unstated=0.0, end="team")',
        credit='gae("value", "rollout", 0.99, 0.95) >> zscore(by="batch", ddof=0, eps=1e-8)',
        unit="turn",
        update="stop_beyond(kl=0.001) >> clip(turn)",
        schedule="warm_up(critic) >> round_robin",
        needs=("critic",),
        source="MARFT (jwliao-ai/MARFT), action level: on from agent to agent, then to the first of the next step",
        conflicts=_ZEROS,
        counts="rows",
        scales=False,
    ),
    Method(
        name="marft_token",
        reward='step(unstated=0.0, end="team")',
        credit='last_token >> token_gae("values", 0.99, 0.95) >> zscore(by="batch", ddof=0, eps=1e-8)',
        unit="turn",
        pays="token",
        update="stop_beyond(kl=0.001) >> clip(token)",
        schedule="warm_up(critic) >> round_robin",
        needs=("critic", "tokens"),
        source="MARFT (jwliao-ai/MARFT), token level: from token to token, then to the next agent's first",
        conflicts=_ZEROS,
        counts="tokens",
        scales=False,
    ),
    Method(
        name="maporl",
        reward='step("verifier")',
        credit='peers_ahead(0.3, "all") >> minus("value") >> whiten(by="batch")',
        unit="turn",
        needs=("critic", "judge"),
        source="MAPoRL: a verifier's score of each answer (channel `verifier`), rounds as stages; a turn is one "
        "action, so its advantage is r - V",
        unknown="the weights of the bonuses for changing one's own mind and others', and the penalty on the "
        "divergence from a reference policy, token by token, which a trace does not have: all three are 0 here",
        conflicts="the bonus for moving others to the right answer has inverted signs in the code and skips the "
        "first round; resolution pays it with the signs of the text",
        counts="rows",
        scales=False,
    ),
)

for _row in TABLE:
    add(_row)
