"""Critics for methods that read one: values, Qs and mixers, fitted to the episodes of an iteration.

A fit is a ridge regression of what came on what the policy's network makes of the record, by kind of decision and
role:

    θ = (XᵀX + r I)⁻¹ Xᵀ G

Every run is told by a fit to the other half of the runs, so that no run's luck is in its own baseline.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.credit import Credit, apply
from podium.credit.credit import read_credit
from podium.credit.forest import parents
from podium.credit.returns import togo
from podium.expression import Call, Node, Then, calls
from podium.graph import units
from podium.learn import tape, update
from podium.learn.credit import at_events
from podium.learn.policy import Made, Net, Parameters
from podium.learn.ridge import by_halves, ridge
from podium.methods import Method, scored
from podium.registry import find
from podium.trace.columns import B, F, Text, Trace

__all__ = ["FITTED", "fitted", "reads"]

N64 = NDArray[np.int64]
RIDGE = 0.01  # of the features' mean square
STEPS, RATE, WIDTH = 200, 0.02, 4  # of a mixer's fit by Adam; and how wide the mixer is
READ = {  # parameters of steps that name a column
    "gae": ("value",),
    "td": ("value",),
    "token_gae": ("value",),
    "minus": ("baseline",),
    "plugged": ("column_",),
    "same_prefix": ("value",),
    "own_action": ("q",),
    "vdn": ("q",),
    "qmix": ("q", "weight"),
}
ORDERS = 8  # in which decisions come, for Shapley's values


@dataclass(frozen=True)
class _Known:
    """All decisions of one kind and role in an iteration, as the network sees them."""

    context: F  # of each row
    past: F  # of each row: the mean context of all decisions of its run before it
    taken: F  # of each row: what is made of the option taken
    options: F  # of each entry: what is made of it
    owner: N64  # of each entry: its row
    odds: F  # of each entry: π
    run: N64  # of each row, over all worlds
    coming: F  # of each row: what is to be told


Told = dict[str, list[F]]  # by column: of each kind and role, a number a row; of "options", a number an entry


def reads(method: Method) -> tuple[str, ...]:
    """The columns of critics that a method's credit reads, of those that can be fitted.

    >>> from podium.methods import named
    >>> reads(named("mappo")), reads(named("agent_q_mix")), reads(named("langmarl")), reads(named("grpo"))
    (('value_joint',), ('q', 'mixer'), (), ())
    """
    return tuple(name for call in calls(read_credit(method.credit)) for name in _columns(call))


def fitted(
    method: Method, traces: Sequence[Trace], made: Sequence[Sequence[Made]], net: Net, w: Parameters
) -> list[Trace]:
    """The traces of an iteration, one a world, with the columns that a method reads; `made` are the decisions of
    their runs, branches come after those."""
    names = reads(method)
    if not names:
        return list(traces)
    kinds = list(dict.fromkeys((m.seen.kind, m.seen.role) for some in made for m in some))
    parts = [
        [(k, m) for k, some in enumerate(made) for m in some if (m.seen.kind, m.seen.role) == kind]
        for kind in kinds
    ]
    coming = [_coming(scored(trace, method), read_credit(method.credit)) for trace in traces]
    known = _known(parts, traces, coming, net, w)
    decomposed = any(call.name in ("vdn", "qmix") for call in calls(read_credit(method.credit)))
    fit = (_decomposed if decomposed else FITTED[names[0]])(known)
    columns = [{name: np.full(trace.n_events, np.nan) for name in names} for trace in traces]
    labels = [dict[int, list[float]]() for _ in traces]
    for i, part in enumerate(parts):
        row = entry = 0
        for k, one in part:
            for name in names:
                columns[k][name][one.row] = fit[name][i][row : row + len(one.row)]
            if "options" in fit:
                each = fit["options"][i][entry : entry + len(one.logp)].round(6)
                labels[k] |= zip(
                    one.row.tolist(), (x.tolist() for x in np.split(each, one.seen.start[1:-1])), strict=True
                )
            row, entry = row + len(one.row), entry + len(one.logp)
    return [
        _written(trace, column, label, came, method.unit)
        for trace, column, label, came in zip(traces, columns, labels, coming, strict=True)
    ]


def _bound(call: Call) -> dict[str, Any]:
    """The arguments of a step by name."""
    bound = inspect.signature(find("step", call.name)).bind(None, *call.args, **dict(call.options))
    bound.apply_defaults()
    return bound.arguments


def _columns(call: Call) -> list[str]:
    """The columns that a step reads, of those that can be fitted."""
    given = _bound(call)
    return [given[name] for name in READ.get(call.name, ()) if given[name] in FITTED]


# ---- what is known of decisions


def _coming(credit: Credit, tree: Node) -> F:
    """Of each event what its unit has coming where a critic is read: credit so far, or the sum of later rewards
    that the step makes."""
    for part in tree.parts if isinstance(tree, Then) else (tree,):
        if not isinstance(part, Call) or _columns(part):
            break
        credit = apply(credit, part)
    if isinstance(part, Call) and part.name in ("gae", "td", "token_gae"):
        step = _bound(part)
        credit = togo(credit, step.get("along", "rollout"), step["gamma"])
    return at_events(credit, credit.value)


def _known(
    parts: Sequence[Sequence[tuple[int, Made]]],
    traces: Sequence[Trace],
    coming: Sequence[F],
    net: Net,
    w: Parameters,
) -> list[_Known]:
    shift = np.cumsum([0, *map(len, traces)])
    steps = [[(k, m, *_made_of(net, w, m)) for k, m in part] for part in parts]
    width = net.shape.context
    past = [np.zeros((trace.n_events, width)) for trace in traces]
    for k, trace in enumerate(traces):
        rows = np.concatenate([m.row for part in steps for j, m, *_ in part if j == k])
        context = np.concatenate([c for part in steps for j, _, c, _ in part if j == k])
        past[k][rows] = _mean_before(context, rows, trace.rollout_e[rows])
    return [
        _Known(
            np.concatenate([c for *_, c, _ in part]),
            np.concatenate([past[k][m.row] for k, m, *_ in part]),
            np.concatenate([h[m.entry] for _, m, _, h in part]),
            np.concatenate([h for *_, h in part]),
            _owners([m.seen.start for _, m, *_ in part]),
            np.exp(np.concatenate([m.logp for _, m, *_ in part]).astype(np.float64)),
            np.concatenate([shift[k] + traces[k].rollout_e[m.row] for k, m, *_ in part]),
            np.concatenate([coming[k][m.row] for k, m, *_ in part]),
        )
        for part in steps
    ]


def _made_of(net: Net, w: Parameters, made: Made) -> tuple[F, F]:
    context, items = net.context(w, made.seen)
    return np.asarray(context, np.float64), np.asarray(net.considered(w, made.seen, context, items), np.float64)


def _mean_before(x: F, row: N64, run: N64) -> F:
    """Of each row the mean of x over earlier rows of its run, 0 if it is the first."""
    order = np.argsort(row)
    first = np.searchsorted(run[order], run[order])
    total = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x[order], axis=0)])
    many = np.arange(len(row)) - first
    mean = np.empty_like(x)
    mean[order] = (total[:-1] - total[first]) / np.maximum(many, 1)[:, None]
    return mean


def _owners(starts: Sequence[N64]) -> N64:
    """Of each entry its row, over several batches of rows."""
    many = np.concatenate([np.diff(start) for start in starts])
    return np.repeat(np.arange(len(many)), many)


# ---- fits


def _told_by(x: F, y: F) -> Callable[[F], F]:
    """A fit to the rows that are scored, about their means."""
    scored_ = ~np.isnan(y)
    if not scored_.any():
        return lambda at: np.zeros(len(at))
    mean, level = x[scored_].mean(axis=0), float(y[scored_].mean())
    slope = ridge(x[scored_] - mean, y[scored_] - level, RIDGE)
    return lambda at: level + (at - mean) @ slope


def _values(known: Sequence[_Known], x: Callable[[_Known], F]) -> list[F]:
    def one(k: _Known) -> F:
        features = x(k)
        return by_halves(k.run, lambda half: _told_by(features[half], k.coming[half]), features)

    return [one(k) for k in known]


def _local(known: Sequence[_Known]) -> Told:
    """V of what the decision's own agent sees."""
    fit = _values(known, lambda k: k.context)
    return dict.fromkeys(("value", "value_local", "values"), fit)


def _joint(known: Sequence[_Known]) -> Told:
    """V of that and of all that was decided before in the run."""
    fit = _values(known, lambda k: np.hstack([k.context, k.past]))
    return {"value_joint": fit, "value_graph": fit}


def _q(known: Sequence[_Known]) -> Told:
    """Q of the option taken, and of every option, with what was decided before in the run."""
    columns: Told = {"q": [], "options": []}
    for k in known:
        x, each = np.hstack([k.taken, k.past]), np.hstack([k.options, k.past[k.owner]])

        def fit(half: B, x: F = x, k: _Known = k) -> Callable[[F], F]:
            return _told_by(x[half], k.coming[half])

        columns["q"].append(by_halves(k.run, fit, x))
        columns["options"].append(by_halves(k.run, fit, each, owner=k.owner))
    return columns


def _decomposed(known: Sequence[_Known]) -> Told:
    """Q_tot = |w2| · elu(|w1| Q + b1) + b2 of a run, Q_g = Σ_i Q_i over its decisions of kind g,
    Q_i = θ_g · (x_i - Σ_k π_k x_k) + V_i

    q is Q_i less V_i, which no choice depends on; mixer the slope ∂Q_tot / ∂Q_g; phi Shapley's value of q: by how
    much it raises Q_tot, averaged over orders in which decisions come (those that have not yet count V_i).
    """
    runs, first = np.unique(np.concatenate([k.run for k in known]), return_index=True)
    at = [np.searchsorted(runs, k.run) for k in known]
    outcome = np.concatenate([k.coming for k in known])[first]
    x = [k.taken - _summed(k.odds[:, None] * k.options, k.owner, len(k.run)) for k in known]
    states = [np.hstack([k.context, np.ones((len(k.run), 1))]) for k in known]
    own = [_summed(features, to, len(runs)) for features, to in zip(x, at, strict=True)]
    rest = [_summed(features, to, len(runs)) for features, to in zip(states, at, strict=True)]
    fit: Told = {name: [np.zeros(len(k.run)) for k in known] for name in ("q", "mixer", "phi")}
    for odd in (False, True):
        learns, here = (runs % 2 == 1) != odd, (runs % 2 == 1) == odd
        mixer = _mixer([np.hstack([a, b])[learns] for a, b in zip(own, rest, strict=True)], outcome[learns])
        theta = [np.split(t, [features.shape[1]]) for t, features in zip(mixer.theta, x, strict=True)]
        q = [features @ t for features, (t, _) in zip(x, theta, strict=True)]
        base = np.column_stack([b @ t for b, (_, t) in zip(rest, theta, strict=True)])
        slope = mixer.slope(base + np.column_stack([a @ t for a, (t, _) in zip(own, theta, strict=True)]))
        phi = _shapley(mixer, base, q, at)
        for g, to in enumerate(at):
            mine = here[to]
            for name, said in (("q", q[g]), ("mixer", slope[to, g]), ("phi", phi[g])):
                fit[name][g][mine] = said[mine]
    return fit


@dataclass(frozen=True)
class _Mixer:
    theta: list[F]
    w1: F
    b1: F
    w2: F

    def total(self, q: F) -> F:
        """Q_tot of teams, less b2, which no difference depends on."""
        return np.asarray(update.qmix(q, self.w1, self.b1, self.w2, np.zeros(1)))

    def slope(self, q: F) -> F:
        """∂Q_tot / ∂Q_g of each team."""
        before = q @ np.abs(self.w1) + self.b1
        mixture: F = (np.where(before > 0, 1.0, np.exp(np.minimum(before, 0.0))) * np.abs(self.w2[:, 0])) @ np.abs(
            self.w1
        ).T
        return mixture


def _mixer(sums: Sequence[F], outcome: F) -> _Mixer:
    """Fitted by Adam, from Q_tot = Σ Q_g by ridge regression."""
    kinds, scored_ = len(sums), ~np.isnan(outcome)
    y = outcome[scored_]
    level, unit = (float(y.mean()), float(y.std()) or 1.0) if len(y) else (0.0, 1.0)
    ends = np.cumsum([s.shape[1] for s in sums])[:-1]
    start = ridge(np.hstack(sums)[scored_], (y - level) / unit, RIDGE)
    w: Parameters = {f"theta{g}": t[:, None] for g, t in enumerate(np.split(start, ends))}
    w |= {
        "w1": np.full((kinds, WIDTH), 1.0 / WIDTH),
        "b1": np.linspace(0.0, 3.0, WIDTH),
        "w2": np.ones((WIDTH, 1)),
        "b2": -np.array([6.0]),
    }
    m, v = ({name: np.zeros_like(x) for name, x in w.items()} for _ in range(2))
    weight = np.full(len(y), 1.0 / max(len(y), 1))
    for step in range(STEPS if len(y) else 0):
        at = {name: tape.Var(x) for name, x in w.items()}
        q = tape.concat([tape.matmul(s[scored_], at[f"theta{g}"]) for g, s in enumerate(sums)])
        total = update.qmix(q, *(at[name] for name in ("w1", "b1", "w2", "b2")))
        tape.backward(update.critic(total, (y - level) / unit, weight))
        update.adam(w, {name: x.grad for name, x in at.items()}, m, v, step + 1, RATE * (1 - step / STEPS))
    return _Mixer([w[f"theta{g}"][:, 0] for g in range(kinds)], w["w1"], w["b1"], w["w2"] * unit)


def _summed(x: F, at: N64, n: int) -> F:
    """Σ of rows by where they belong."""
    total = np.zeros((n, x.shape[1]))
    np.add.at(total, at, x)
    return total


def _shapley(mixer: _Mixer, base: F, q: Sequence[F], at: Sequence[N64]) -> list[F]:
    """φ_i = mean over orders of Q_tot({i and those before it}) - Q_tot({those before it}); `base` is Q of each run
    without any."""
    kind = np.repeat(np.arange(len(q)), [len(x) for x in q])
    run, own = np.concatenate(at), np.zeros((len(kind), len(q)))
    own[np.arange(len(kind)), kind] = np.concatenate(q)
    found, dice = np.zeros(len(kind)), np.random.default_rng(len(kind))
    for _ in range(ORDERS):
        order = np.lexsort((dice.random(len(kind)), run))
        total = np.concatenate([np.zeros((1, len(q))), np.cumsum(own[order], axis=0)])
        before = base[run[order]] + total[:-1] - total[np.searchsorted(run[order], run[order])]
        found[order] += (mixer.total(before + own[order]) - mixer.total(before)) / ORDERS
    return np.split(found, np.cumsum([len(x) for x in q])[:-1])


# ---- columns of a trace


def _written(trace: Trace, columns: dict[str, F], labels: dict[int, list[float]], coming: F, unit: str) -> Trace:
    """Numbers on the rows that stand for the decisions' units, and lists over options on decisions."""
    up, first = parents(trace), trace.first_of("e")
    for run in np.flatnonzero(up >= 0).tolist():  # a branch repeats its parent up to where it chose otherwise
        at, own, source = int(trace.branch_n[run]), int(first[run]), int(first[up[run]])
        for column in columns.values():
            column[own : own + at] = column[source : source + at]
        if source + at in labels:
            options = trace.options(own + at)
            columns["q"][own + at] = labels[source + at][options.index(str(trace.chosen_e[own + at]))]
    stands: list[str | None] = [None] * trace.n_events
    for row, each in labels.items():
        stands[row] = str(each)
    extra = {"q": Text.of(stands)} if labels else {}
    if "values" in columns:
        extra["values"] = Text.of(None if np.isnan(x) else f"[{x:.6g}]" for x in columns["values"])
    whole = {name: _carried(trace, column, coming, unit) for name, column in columns.items()}
    return replace(trace, reward_e={**trace.reward_e, **whole}, extra_e={**trace.extra_e, **extra})


def _carried(trace: Trace, column: F, coming: F, unit: str) -> F:
    """The column on rows that stand for units: of the unit's first decision. A unit without one decides nothing, so
    that nothing may change there: it has what the next one of its run has, and after the last what came."""
    stand, place = units.rows(trace, unit), units.place(trace, unit)
    rows = np.flatnonzero(~np.isnan(column))[::-1]
    values = np.full(len(stand), np.nan)
    values[place[rows]] = column[rows]  # the first one is written last, so it stays
    order = np.argsort(stand, kind="stable")
    run, known = trace.rollout_e[stand[order]], np.flatnonzero(~np.isnan(values[order]))
    if len(known):
        after = known[np.minimum(np.searchsorted(known, np.arange(len(order))), len(known) - 1)]
        same = (run[after] == run) & (after >= np.arange(len(order)))
        values[order] = np.where(same, values[order][after], coming[stand[order]])
    whole = np.full(trace.n_events, np.nan)
    whole[stand] = values
    return whole


FITTED: dict[str, Callable[[Sequence[_Known]], Told]] = {
    **dict.fromkeys(("value", "value_local", "values"), _local),
    **dict.fromkeys(("value_joint", "value_graph"), _joint),
    "q": _q,
    **dict.fromkeys(("mixer", "phi"), _decomposed),
}
