"""Where runs of teams that write are branched: at generations whose answers were uncertain and matter, within a
budget of tokens.

    score of a generation = -Σ log π(token) · s,   s the standard deviation of what the runs of its task earned

A branch is expected to take as many tokens as its run took from there on. Generations are taken in falling order of
their score as long as all continuations of all that were taken fit into the budget.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from podium.trace.columns import Trace

__all__ = ["branch_points"]

LITTLE = 1e-3  # the stake where all runs of a task earned the same, as a share of one


def branch_points(traces: Sequence[Trace], rows: Sequence[tuple[int, int]], each: int, tokens: int) -> list[int]:
    """Which of these generations, (run, row) each, get `each` continuations within so many tokens; all if 0.

    The runs are traces of one run each. What comes out are places in `rows`, in their order.
    """
    if not tokens:
        return list(range(len(rows)))
    earned = np.array([float(t.reward_n["team"][0]) if "team" in t.reward_n else np.nan for t in traces])
    tasks = [str(t.task_id_n[0]) for t in traces]
    stake = {}
    for task in dict.fromkeys(tasks):
        some = earned[[name == task for name in tasks]]
        known = some[~np.isnan(some)]
        stake[task] = max(float(known.std()) if len(known) else 0.0, LITTLE)
    score, cost = [], []
    for run, row in rows:
        trace = traces[run]
        model_k = trace.mask_k == 1
        score.append(-float(np.nansum(trace.logp_k[trace.owner_k == row])) * stake[tasks[run]])
        cost.append(each * int((model_k & (trace.owner_k >= row)).sum()))
    chosen, left = [], tokens
    for place in sorted(range(len(rows)), key=lambda i: (-score[i], i)):
        if cost[place] <= left:
            chosen.append(place)
            left -= cost[place]
    return sorted(chosen)
