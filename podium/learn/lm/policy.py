"""Language models as the policy of the loop: gradient steps on the packed token trees of credited traces.

What is trained on is read off traces alone: tokens, contexts, log-probabilities and options. So it works as well on
one that was stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from podium.credit import Credit
from podium.credit.forest import roots
from podium.engine.models import BadModel, PolicyModel, PolicyTeam, out_of_memory, role_of
from podium.engine.tensors import send
from podium.envs.world import LEAD
from podium.learn.lm import packed
from podium.learn.lm.losses import couples_tokens, divergence, filter_of, loss
from podium.learn.lm.optimiser import adamw, shortened
from podium.learn.lm.settings import Settings, computing
from podium.learn.lm.token_credit import Among, TokenCredit, among_of, token_credit, trees
from podium.learn.lm.tree import Tree, join
from podium.learn.loop import Change, Rollouts
from podium.learn.regimes import turns_of
from podium.learn.unpaid import at_rows
from podium.methods import Method
from podium.methods.update import Term, Update
from podium.trace.columns import F, Trace

__all__ = ["LmPolicy", "apply_gradient", "halving", "own_weights"]

T = TypeVar("T")
N64 = NDArray[np.int64]
Batch = tuple[PolicyModel, Tree, dict[str, Any]]  # a policy, a tree for it, and columns over the tree's nodes
Paid = Sequence[tuple[Trace, TokenCredit]]


def own_weights(team: PolicyTeam) -> dict[str, Any]:
    """All weights that are trained, by policy and name."""
    return {f"{policy.name}:{name}": w for policy in team.policies.values() for name, w in policy.weights().items()}


class _Steps(NamedTuple):
    """What the gradient steps of an update came to."""

    gradient: float
    gradients: dict[str, float]
    tokens: int
    rho: float
    divergence: float | None
    off: float


class LmPolicy:
    """All that the next iteration depends on, beside the weights in the team: an AdamW, and how far it has come.

    The rate falls by 1 - iteration / `iterations`, and so does the entropy bonus of the settings.
    """

    def __init__(
        self,
        team: PolicyTeam,
        seed: int,
        settings: Settings,
        iterations: float,
        update: Update | None = None,
        schedule: Term | None = None,
        look_at_roles: bool = False,
    ) -> None:
        self.team, self.seed, self.settings, self.iterations = team, seed, settings, iterations
        self.schedule, self.look_at_roles = schedule, look_at_roles
        self.iteration = self.updates = 0
        self.most_tokens = settings.most_tokens
        weights = own_weights(team)
        if not weights:
            raise BadModel("every policy is frozen: there is nothing to train")
        self.m, self.v = (
            {k: torch.zeros_like(w, dtype=torch.float32) for k, w in weights.items()} for _ in range(2)
        )
        self.learners()  # a schedule that names nobody here is refused now
        anchored = settings.kl or (update is not None and update.penalty("kl"))
        self.reference = {k: w.detach().clone() for k, w in weights.items()} if anchored else {}

    @property
    def left(self) -> float:
        """The share of the run that is left."""
        return 1.0 - self.iteration / self.iterations

    def fit(self, rollouts: Sequence[Rollouts], method: Method) -> list[Rollouts]:
        """Nothing is fitted: a method that needs a critic is refused before a run begins."""
        return list(rollouts)

    def update(self, rollouts: Sequence[Rollouts], credit: Sequence[Credit], update: Update) -> Change:
        """Some gradient steps on credited runs."""
        traces = [one.trace for one in rollouts]
        paid_d = np.concatenate([at_rows(c, one.rows) for c, one in zip(credit, rollouts, strict=True)])
        known = ~np.isnan(paid_d)
        pays = [(trace, self._token_credit(trace, c, update)) for trace, c in zip(traces, credit, strict=True)]
        more: dict[str, Any] = {}
        if self.look_at_roles:
            more["roles"] = self._by_role(traces, credit, update)
        steps = self.gradient_steps(update, pays)
        entropies = [pay.entropy for _, pay in pays if pay.entropy is not None]
        more |= {
            "tokens": steps.tokens,
            "rho": steps.rho,
            "faults": sum(int((trace.valid_e == 0).sum()) for trace in traces),
            "most_tokens": self.most_tokens,
            "divergence": steps.divergence,
            "off": steps.off,
        }
        self.iteration += 1
        return Change(
            rows=sum(len(np.unique(trace.owner_k[pay.share_k > 0])) for trace, pay in pays),
            entropy=float(np.mean(entropies)) if entropies else None,
            gradient=steps.gradient,
            gradients=steps.gradients,
            paid=float(known.mean()) if len(known) else 0.0,
            credit=float(np.sqrt((paid_d[known] ** 2).mean())) if known.any() else None,
            more=more,
        )

    def _token_credit(self, trace: Trace, credit: Credit, update: Update, plain: bool = False) -> TokenCredit:
        """Credit on tokens as the update wants it; `plain` without the entropy bonus."""
        bonus = [term for term in update.penalties if term.name == "entropy"]
        mean = filter_of(update, "mean_over")
        entropy = self.settings.entropy * self.left or sum(term.weight * term["weight"] for term in bonus)
        return token_credit(
            trace,
            credit,
            entropy=0.0 if plain else entropy,
            by_role=any(term["by"] == "role" for term in bonus),
            even=self.settings.even,
            by_run=mean is not None and mean["what"] == "run",
            skip_zeros=filter_of(update, "skip_zeros") is not None,
        )

    # ---- gradient steps

    def gradient_steps(self, update: Update, pays: Paid) -> _Steps:
        """Gradient steps on tokens with their credit: `epochs` times, in `parts` of whole families of runs."""
        settings, weights = self.settings, own_weights(self.team)
        dice = np.random.default_rng([self.seed, self.iteration, 0xBA7C])
        warm = min(1.0, (self.iteration + 1) / settings.warm) if settings.warm else 1.0
        policies = [self.team.policies[name] for name in self.learners()]
        among = {(i, p.name): among_of(trace, p) for i, (trace, _) in enumerate(pays) for p in policies}
        pays = self._weighed(update, pays, policies, among)
        trust = filter_of(update, "stop_beyond")
        norms, lengths, far = list[float](), dict[str, list[float]](), list[float]()
        tokens, laid, off = 0, 0, float("nan")
        for part in self._parts(pays, dice):
            batches = self._batches(update, pays, part, policies, among)
            if not batches:
                continue
            done = self._accumulate(update, batches)
            tokens, laid = tokens + done.tokens, laid + sum(len(tree.node) for _, tree, _ in batches)
            off = off if norms else done.off
            if trust is not None and norms and done.moved > trust["kl"]:
                self.forget_gradient()
                break
            far += [] if done.divergence is None else [done.divergence]
            grad = {k: w.grad for k, w in weights.items() if w.grad is not None}
            each = _by_policy(grad)
            for name, length in each.items():
                lengths.setdefault(name, []).append(length)
            norms.append(sum(length**2 for length in each.values()) ** 0.5)
            apply_gradient(self, weights, grad, settings.rate * self.left * warm, each)
        return _Steps(
            float(np.mean(norms)) if norms else 0.0,
            {name: float(np.mean(some)) for name, some in lengths.items()},
            tokens // settings.epochs,
            laid / max(tokens, 1),
            float(np.mean(far)) if far else None,
            off,
        )

    def learners(self) -> list[str]:
        """The policies that learn in this iteration."""
        names = [policy.name for policy in self.team.policies.values() if not policy.frozen]
        if self.schedule is None or len(names) < 2:
            return names
        turns = turns_of(self.schedule, sorted(names, key=lambda name: name != self.team.lead(LEAD)))
        turn = turns[self.iteration // self.schedule.arguments.get("every", 1) % len(turns)]
        return [name for name in names if name in turn]

    def _parts(self, pays: Paid, dice: np.random.Generator) -> Iterator[list[N64]]:
        """The families of runs of each gradient step: of each trace some."""
        for _ in range(self.settings.epochs):
            orders = [dice.permutation(np.unique(roots(trace))) for trace, _ in pays]
            for part in range(self.settings.parts):
                yield [order[part :: self.settings.parts] for order in orders]

    def _batches(
        self,
        update: Update,
        pays: Paid,
        families: list[N64],
        policies: Sequence[PolicyModel],
        among: dict[tuple[int, str], Among],
    ) -> list[Batch]:
        """What a gradient step is of, for each policy that is trained; in regime C each on its own scale."""
        batches: list[Batch] = []
        for policy in policies:
            some = [
                tree
                for i, ((trace, pay), family) in enumerate(zip(pays, families, strict=True))
                if (tree := trees(trace, pay, policy, self.team, family, among[i, policy.name])) is not None
            ]
            if some:
                batches.append((policy, *_joined(some)))
        mean = filter_of(update, "mean_over")
        runs = mean is not None and mean["what"] == "none"
        if self.settings.regime != "C":
            return _normalised(batches, by_runs=runs)
        return [batch for one in batches for batch in _normalised([one], scaled=True, by_runs=runs)]

    def _weighed(
        self, update: Update, pays: Paid, policies: Sequence[PolicyModel], among: dict[tuple[int, str], Among]
    ) -> Paid:
        """With `truncated` and a ratio, that is to the policy before its first step, π_0, and a token counts
        min(π_0 / π_acted, most) times: π_acted is on record."""
        most = filter_of(update, "truncated")
        if most is None or update.loss.name == "reinforce":
            return pays
        weighed = []
        for i, (trace, pay) in enumerate(pays):
            old_k = pay.old_k.copy()
            for policy in policies:
                if (one := trees(trace, pay, policy, self.team, None, among[i, policy.name])) is None:
                    continue
                tree, columns = one
                longest = max(self.most_tokens, int(tree.position.max()) + 1)
                with computing(self.settings), torch.no_grad():
                    logp = packed.log_probs(policy.activate(), tree, most_tokens=longest).double().cpu().numpy()
                own = columns["share"] > 0
                old_k[columns["place"][own]] = logp[own]
            weight_k = np.minimum(np.exp(np.nan_to_num(old_k - trace.logp_k)), most["most"])
            weighed.append((trace, pay._replace(share_k=pay.share_k * weight_k, old_k=old_k)))
        return weighed

    def _accumulate(self, update: Update, batches: list[Batch]) -> _Sum:
        """Gradients of all batches, in the weights."""
        return halving(
            self,
            lambda: self._once(update, batches),
            lambda: max(int(tree.position.max()) + 1 for _, tree, _ in batches),
            "; a smaller model, shorter episodes, or checkpointing = true would need less",
        )

    def _once(self, update: Update, batches: list[Batch]) -> _Sum:
        beta, total = self.settings.kl or update.penalty("kl"), _Sum(0, None, 0.0, 0.0)
        for policy, tree, columns in batches:
            module = policy.activate()
            longest = max(self.most_tokens, int(tree.position.max()) + 1)
            with computing(self.settings):
                reference = self._reference(policy, tree, longest) if beta else None
                objective = _Objective(update, columns, policy.model.device, reference, beta)
                with _checkpointing(module, self.settings.checkpointing):
                    whole = couples_tokens(update)
                    done = packed.loss_and_backward(module, [tree], objective, longest, whole=whole)
            total = total.plus(done.tokens, objective)
        return total

    def _reference(self, policy: PolicyModel, tree: Tree, longest: int) -> Any:
        """Log-probabilities under the weights that a policy had at the start."""
        weights, now = policy.weights(), {}
        with torch.no_grad():
            for name, w in weights.items():
                now[name] = w.detach().clone()
                w.copy_(self.reference[f"{policy.name}:{name}"])
            logp = packed.log_probs(policy.activate(), tree, most_tokens=longest)
            for name, w in weights.items():
                w.copy_(now[name])
        return logp

    def forget_gradient(self) -> None:
        for w in own_weights(self.team).values():
            w.grad = None

    # ---- of each role

    def _by_role(
        self, traces: Sequence[Trace], credit: Sequence[Credit], update: Update
    ) -> dict[str, dict[str, float]]:
        """Of each role how large its credit is (root mean square, and the mean), how many tokens are paid, and the
        length of its part of the gradient, on its own; nothing is learned."""
        roles: dict[str, dict[str, float]] = {}
        for trace, given in zip(traces, credit, strict=True):
            pay = self._token_credit(trace, given, update, plain=True)
            names = np.array([role_of(str(name)) for name in trace.name_a.strings()])
            role_k = names[trace.agent_e[trace.owner_k]] if len(trace.owner_k) else np.zeros(0, str)
            for role in sorted(set(names.tolist())):
                share: F = np.where(role_k == role, pay.share_k, 0.0)
                if not share.any():
                    continue
                total = float(share.sum())
                roles[role] = {
                    "credit": float(np.sqrt((share * pay.credit_k**2).sum() / total)),
                    "mean": float((share * pay.credit_k).sum() / total),
                    "tokens": int((share > 0).sum()),
                    "gradient": self._gradient_of(update, trace, pay._replace(share_k=share)),
                }
        return roles

    def _gradient_of(self, update: Update, trace: Trace, pay: TokenCredit) -> float:
        """The length of the gradient of what is paid here, on its own."""
        batches = [
            (policy, *one)
            for policy in self.team.policies.values()
            if not policy.frozen and (one := trees(trace, pay, policy, self.team)) is not None
        ]
        self._accumulate(update, _normalised(batches))
        length = _length([w.grad for w in own_weights(self.team).values() if w.grad is not None])
        self.forget_gradient()
        return length


def apply_gradient(
    policy: LmPolicy, weights: dict[str, Any], grad: dict[str, Any], rate: float, lengths: dict[str, float]
) -> None:
    """One step of AdamW by gradients whose length by policy is given; they are forgotten then.

    They are made no longer than they may be: all together, or each policy's by joint(optimizer=agent).
    """
    settings, stage = policy.settings, policy.schedule
    if stage and stage.arguments.get("optimizer") == "agent":
        for name, length in lengths.items():
            own = {k: g for k, g in grad.items() if k.partition(":")[0] == name}
            shortened(own, length, settings.norm)
    else:
        shortened(grad, sum(length**2 for length in lengths.values()) ** 0.5, settings.norm)
    policy.updates += 1
    adamw(weights, grad, policy.m, policy.v, policy.updates, rate, beta=settings.beta, decay=settings.decay)
    policy.forget_gradient()


def _by_policy(grad: dict[str, torch.Tensor]) -> dict[str, float]:
    """The length of each policy's part of a gradient."""
    names = list(dict.fromkeys(key.partition(":")[0] for key in grad))
    each = {name: [g for key, g in grad.items() if key.partition(":")[0] == name] for name in names}
    return {name: _length(some) for name, some in each.items()}


def _length(grads: Sequence[torch.Tensor]) -> float:
    """√ Σ g² over all of these, read from the device once."""
    return float(torch.stack(torch._foreach_norm(list(grads))).double().square().sum().sqrt()) if grads else 0.0


def _joined(some: Sequence[tuple[Tree, dict[str, Any]]]) -> tuple[Tree, dict[str, Any]]:
    """Trees of several traces as one, to go through the model together; their turns and runs stay apart."""
    columns: dict[str, list[Any]] = {}
    above = {"turn": 0, "run": 0}
    for _, own in some:
        for name, values in own.items():
            columns.setdefault(name, []).append(values + above.get(name, 0))
        above = {name: int(columns[name][-1].max()) + 1 for name in above}
    return join([tree for tree, _ in some]), {name: np.concatenate(parts) for name, parts in columns.items()}


def _normalised(batches: list[Batch], scaled: bool = False, by_runs: bool = False) -> list[Batch]:
    """Batches whose shares add up to 1, or are so many times one over the number of runs; `scaled`: with credit in
    units of its own root mean square."""
    total = sum(float(columns["share"].sum()) for _, _, columns in batches)
    square = sum(float((columns["share"] * columns["credit"] ** 2).sum()) for _, _, columns in batches)
    unit = np.sqrt(square / max(total, 1e-12)) + 1e-12 if scaled else 1.0
    if by_runs:
        total = float(len({run for _, _, c in batches for run in c["run"][c["share"] > 0].tolist()}))
    return [
        (
            policy,
            tree,
            columns | {"share": columns["share"] / max(total, 1e-12), "credit": columns["credit"] / unit},
        )
        for policy, tree, columns in batches
    ]


class _Objective:
    """The loss of some nodes of a tree, and what is measured beside it."""

    def __init__(self, update: Update, columns: dict[str, Any], device: Any, reference: Any, beta: float) -> None:
        self.update, self.device, self.reference, self.beta = update, device, reference, beta
        tensors = {k: torch.from_numpy(np.ascontiguousarray(v)).to(device) for k, v in columns.items()}
        self.columns = {k: v.float() if v.dtype == torch.float64 else v for k, v in tensors.items()}
        over = update.loss.arguments.get("over", "token")
        self.group = {"turn": self.columns["turn"], "sequence": self.columns["run"]}.get(over)
        self.off: list[Any] = []  # Σ share |log π - log π_old| ...
        self.moved: list[Any] = []  # ... and the divergence of π from π_old ...
        self.far: list[Any] = []  # ... and from the reference

    def __call__(self, logp: Any, nodes: Any) -> Any:
        (at,) = send(self.device, nodes)
        own = {k: v[at] for k, v in self.columns.items()}
        number = None if self.group is None else torch.unique(self.group[at], return_inverse=True)[1]
        total = loss(self.update, logp, own["old"], own["credit"], own["share"], number)
        now = logp.detach()
        self.off.append((own["share"] * (now - own["old"]).abs()).sum())
        self.moved.append(divergence(own["old"], now, own["share"]))
        if self.reference is not None:
            apart = divergence(logp, self.reference[at], own["share"])
            self.far.append(apart.detach())
            total = total + self.beta * apart
        return total


class _Sum(NamedTuple):
    """What one gradient is made of."""

    tokens: int
    divergence: float | None  # from the reference
    off: float  # Σ share |log π - log π_old|
    moved: float  # the divergence from the policy that acted

    def plus(self, tokens: int, objective: _Objective) -> _Sum:
        far = float(sum(objective.far)) if objective.far else None
        both = self.divergence if far is None else far + (self.divergence or 0.0)
        off, moved = float(sum(objective.off)), float(sum(objective.moved))
        return _Sum(self.tokens + tokens, both, self.off + off, self.moved + moved)


def halving(policy: LmPolicy, once: Callable[[], T], longest: Callable[[], int], advice: str = "") -> T:
    """Gradients as `once` leaves them in the weights; out of memory the same with half as many tokens at once."""
    while True:
        try:
            return once()
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            policy.forget_gradient()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            if policy.most_tokens // 2 < (most := longest()):
                raise BadModel(
                    f"out of memory in the update with {policy.most_tokens} tokens at once, and one branch has "
                    f"{most}{advice}"
                ) from None
            policy.most_tokens //= 2


@contextmanager
def _checkpointing(module: Any, wanted: bool) -> Iterator[None]:
    """Activations computed again backwards, where that is wanted: with it on, transformers keeps no context."""
    if not wanted:
        yield
        return
    module.gradient_checkpointing_enable({"use_reentrant": False})
    module.train()  # in eval nothing is checkpointed; there is no dropout
    try:
        yield
    finally:
        module.gradient_checkpointing_disable()
        module.eval()
