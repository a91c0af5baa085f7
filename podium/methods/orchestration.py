"""Methods that learn to orchestrate: whom to spawn, whom to ask, how to talk, when to stop."""

from functools import partial

from podium.methods.method import Method, add

__all__: list[str] = []

Card = partial(Method, reward="", update="none", schedule="none")

TABLE = (
    Method(
        name="parl",
        reward="parl",
        credit='center(by="task") >> to("orchestrator") >> only("lead") >> weigh("token")',
        pays="orchestrator",
        update="mirror",
        schedule="frozen(others)",
        needs=("group", "spawns"),
        source="Kimi K2.5 technical report, section 3",
        known="partial",
        unknown="the two weights, their schedule and the form of r_parallel are not published; those of the "
        "reward `parl` are ours",
        conflicts="the survey calls r_parallel a speed-up and training frozen-then-joint; the report pays for "
        "instantiating sub-agents and tells of frozen ones only, and so do we. Critical steps are a budget "
        "there, no reward.",
    ),
    Method(
        name="puppeteer",
        credit='(decay("agent", 0.0) - 0.1 * scored("step_cost(budget=4)")) >> togo("agent", 0.99) >> only("lead")',
        unit="orchestrator",
        update="reinforce",
        source="Dang et al. 2025, arXiv 2505.19591: R_T = r - λ C_T, R_t = γ R_{t+1} - λ C_t, C_t = F log(1 + t / "
        "φ)",
        conflicts="the released code scales another cost, 0.1 log(1 + (t + 1) / (T + 1)) / log 2, by tokens, and "
        "adds or takes half of it at the end; we took the paper's, with F = 1 and φ = 4, its deepest path. The "
        "survey tells of a learned critic; there is none.",
        counts="rows",
        scales=False,
    ),
    Method(
        name="paramanager",
        credit='zscore(by="task") >> to("orchestrator") >> only("lead")',
        pays="orchestrator",
        schedule="supervised(on=recoveries) >> joint",
        needs=("group",),
        source="ParaManager, as the survey tells of it",
        known="abstract",
        unknown="the rewards for protocol, diversity and parallel work, and their weights; what runs is the "
        "comparison of success within a group, for the lead's decisions",
    ),
    Method(
        name="agent_q_mix",
        reward="outcome - 0.1 * clip(spent / 10000, 0, 1)",
        credit='qmix("q", "mixer")',
        unit="turn",
        update="q_learning",
        schedule="replay",
        needs=("critic",),
        source="Agent Q-Mix, formulas from its repository",
        unknown="the fit of the Q_i and of the mixer, which is the method: a trace has none; what runs is |w_i| "
        "Q_i of the columns `q` and `mixer` of turns, as somebody fitted them",
        conflicts="the code regresses every step but the last and marks only the last as done, so that what it "
        "bootstraps from is never learned; the columns read here are of a Q that was fitted on all steps.",
        counts="rows",
    ),
    Method(
        name="halo",
        reward='outcome("judge")',
        credit="subtree_mean()",
        unit="turn",
        update="none",
        schedule="search(by=mcts)",
        needs=("branches", "judge"),
        source="HALO, as the survey tells of it",
        known="partial",
        unknown="the search, which picks V / n + 1.4 √(ln N / n), is no credit; what runs is V / n, the mean of "
        "the runs through a node",
    ),
    Method(
        name="hera",
        credit='center(by="task")',
        update="edit_prompts",
        needs=("group",),
        source="HERA, as the survey tells of it",
        known="partial",
        unknown="the price of a topology in its reward, and all that is words: insights, their use and the "
        "evolution of prompts; what runs is the comparison of a group of topologies by outcome",
    ),
    Method(
        name="langmarl",
        credit='plugged("language")',
        unit="agent",
        update="edit_prompts",
        needs=("critic",),
        source="LangMARL, as the survey tells of it",
        known="partial",
        unknown="its critic, gradients and optimiser speak in words; what runs is a figure that a language critic "
        "gave each agent, in the column `language`",
    ),
    Card(
        name="agentspawn",
        unit="orchestrator",
        source="AgentSpawn, as the survey tells of it",
        known="partial",
        unknown="it spawns where a score of complexity passes a threshold, hands over a slice of memory and "
        "resumes; nothing is learned, so there is no credit to compute",
    ),
    Card(
        name="mas_zero",
        unit="orchestrator",
        source="MAS-Zero, as the survey tells of it",
        known="abstract",
        unknown="it searches designs at inference, led by its own feedback in words; nothing is learned, so there "
        "is no credit to compute",
    ),
    Card(
        name="latentmas",
        unit="message",
        source="LatentMAS, as the survey tells of it",
        known="abstract",
        unknown="agents pass hidden states instead of words, without training, so there is no credit to compute",
    ),
)

for _row in TABLE:
    add(_row)
