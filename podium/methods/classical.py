"""Classical multi-agent credit. What is fitted (Q, mixers, Shapley critics) is read from columns."""

from podium.methods.method import Method, add

__all__: list[str] = []

TABLE = (
    Method(
        name="coma",
        credit='own_action("q", "pi")',
        unit="orchestrator",
        update="reinforce",
        needs=("critic", "labels"),
        source="Foerster et al. 2018, arXiv 1705.08926",
        counts="rows",
    ),
    Method(
        name="vdn",
        credit='vdn("q")',
        unit="turn",
        update="q_learning(double=True)",
        schedule="replay",
        needs=("critic",),
        source="Sunehag et al. 2018, arXiv 1706.05296",
        unknown="the fit of the Q_i, which is the method: a trace has none; what runs is a reading of the column "
        "`q` of turns, Q_i as somebody fitted it",
        counts="rows",
    ),
    Method(
        name="qmix",
        credit='qmix("q", "mixer")',
        unit="turn",
        update="q_learning",
        schedule="replay",
        needs=("critic",),
        source="Rashid et al. 2018, arXiv 1803.11485; an agent's part of Q_tot to first order",
        unknown="the fit of the Q_i and of the mixer, which is the method: a trace has none; what runs is |w_i| "
        "Q_i of the columns `q` and `mixer` of turns, as somebody fitted them",
        counts="rows",
    ),
    Method(
        name="maddpg",
        reward='step("agent", unstated=0.0, end="team", each="agent")',
        credit='td("q", "agent", 0.95)',
        unit="turn",
        update="deterministic",
        schedule="replay(target=True)",
        needs=("critic",),
        source="Lowe et al. 2017, arXiv 1706.02275",
        unknown="the gradient of Q through an action, which words do not have; what runs is the error of each "
        "agent's own critic, r_i + γ Q_i' - Q_i",
        counts="rows",
        scales=False,
    ),
    Method(
        name="shapley_q",
        credit='vdn("phi")',
        unit="turn",
        update="deterministic(through=agent)",
        schedule="replay",
        needs=("critic",),
        source="Wang et al. 2020, arXiv 1907.05707 (SQDDPG): Q = Σ φ_i, φ_i a learned marginal averaged over "
        "sampled orders",
        unknown="the fit of the marginals and the average over orders, which are the method: a trace has none; "
        "what runs is a reading of the column `phi` of turns, φ_i as somebody fitted it",
        counts="rows",
    ),
    Method(
        name="difference",
        credit='masked("agent")',
        pays="agent",
        update="reinforce",
        needs=("masks",),
        source="Wolpert & Tumer 2002: D_i = G(z) - G(z without i); here i is masked and the run goes on without it",
    ),
)

for _row in TABLE:
    add(_row)
