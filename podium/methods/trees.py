"""Methods that compare what was done at one node of a tree of runs.

Alternatives are runs that branched: `parent`, the row at which they left, and what follows. The first turns of
separate runs of a task are alternatives too.
"""

from podium.methods.method import Method, add

__all__: list[str] = []


_C3 = "C3 (counterfactual credit by replay from a shared prefix)"
_GAP = (
    "the text describes leave-one-out of rewards, the training script resolves to the critic's (value_assisted, "
    "a = 1): each is a row of its own here, and none is called c3"
)

TABLE = (
    *(
        Method(
            name=_name,
            reward='step(unstated=0.0, end="team", each="agent")',
            credit="own_backup(0.9)" + (f' >> once({_baseline}(by=("parent", "agent")))' if _baseline else ""),
            unit="turn",
            update="reinforce",
            schedule="joint(order=last_turn_first)",
            needs=("group",) if _baseline else (),
            source="CoMLRL (OpenMLRL/CoMLRL), aligned samples: joint rewards, backed up over the tree, against "
            f"{_text}",
            conflicts="the paper discounts turns by 0.9, the package of today not at all: the paper's"
            + {
                "marloo": "; the text says the baseline is of other agents, formula and code that it is of other "
                "samples: the code's",
                "maremax": "; named after ReMax, but the baseline is the best sample, not a greedy run: the code's",
            }.get(_name, ""),
            counts="rows",
        )
        for _name, _baseline, _text in (
            ("magrpo", "center", "the mean of its siblings"),
            ("mareinforce", "", "nothing"),
            ("marloo", "leave_one_out", "the mean of the other samples"),
            ("maremax", "below_best", "the best of its siblings"),
        )
    ),
    Method(
        name="magrpo_cross",
        reward='step(unstated=0.0, end="team", each="agent")',
        credit='cross_marginal("sum") >> center(by=("task", "agent", "turn"))',
        unit="turn",
        update="reinforce",
        needs=("group",),
        source="CoMLRL (OpenMLRL/CoMLRL), crossed samples of one turn: all combinations of what agents wrote "
        "(equal `content_ref`)",
        conflicts="the code sums over combinations, so that credit grows with the team; the mean does not: the "
        "code's",
        counts="rows",
    ),
    Method(
        name="c3_reward_only",
        credit='same_prefix("loo", alone="zero")',
        unit="turn",
        needs=("branches", "roles"),
        source=f"{_C3}: A = R - LOO(R), R the mean over the runs through a node, others weighted by how many those "
        "are",
        conflicts=_GAP,
        counts="rows",
    ),
    Method(
        name="c3_value_only",
        credit='plugged("q") >> same_prefix("loo", alone="zero")',
        unit="turn",
        needs=("branches", "roles", "critic"),
        source=f"{_C3}: A = Q - LOO(Q), Q the channel `q` of a critic that read the text so far",
        conflicts=_GAP,
        counts="rows",
    ),
    Method(
        name="c3_value_assisted",
        credit='same_prefix("value", "q", mix=1.0, alone="zero")',
        unit="turn",
        needs=("branches", "roles", "critic"),
        source=f"{_C3}: A = R - LOO(Q), which is R - [(1 - a) LOO(R) + a LOO(Q)] with a = 1",
        conflicts=_GAP,
        counts="rows",
        scales=False,
    ),
)

for _row in TABLE:
    add(_row)
