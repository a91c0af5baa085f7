"""A training run by a recipe: the name of one of ours, a TOML file, or the same settings as a dict."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from podium.envs.world import use_world
from podium.learn.folder import BadRecipe, Run, read_recipe, table_of
from podium.methods import add
from podium.outside import use
from podium.registry import alternatives

__all__ = ["open_run", "train_by_recipe"]

RECIPES = Path(__file__).parent / "recipes"


def train_by_recipe(
    recipe: str | Path | Mapping[str, Any] = "stop", folder: str | Path | None = None, **options: Any
) -> dict[str, Any]:
    """Trains by a recipe to its end and says how the policy plays: value, optimum, regret, share of the gap.

    `recipe` is the name of one of ours, a TOML file or a dict of settings such as `{"world": "scouts", "method":
    "dr_mas"}`. `options` are those of `open_run`. The run is kept in `folder`, out/RECIPE unless told; one that was
    ended goes on where it was.
    """
    run = open_run(recipe, folder, **options)
    for _ in run.iterations():
        pass
    run.played()
    summary: dict[str, Any] = run.told()
    return summary


def open_run(
    recipe: str | Path | Mapping[str, Any],
    folder: str | Path | None = None,
    *,
    seed: int | None = None,
    method: str | None = None,
    policy: str = "net",
    model: str | None = None,
    cores: int = 1,
    keep: bool = False,
    source: str | Path | None = None,
) -> Any:
    """The run: of a small network (policy="net") or of language models ("lm"); in a world, or of a live team.

    `seed` and `method` are instead of the recipe's. With `keep` the runs are kept in the folder; `source` is the
    folder of a run that kept them, from which this one learns again. A method or world may be FILE.py:NAME, which
    is loaded. Raises BadRecipe.
    """
    where, stem = ("the recipe",) * 2 if isinstance(recipe, Mapping) else (str(recipe), Path(recipe).stem)
    table = dict(recipe) if isinstance(recipe, Mapping) else _table(str(recipe))
    table |= {k: v for k, v in {"seed": seed, "method": method}.items() if v is not None}
    if isinstance(table.get("method"), str):
        table["method"] = use("method", table["method"], add)
    if isinstance(table.get("world"), str):
        table["world"] = use_world(table["world"])
    if "team" in table and "world" in table:
        raise BadRecipe(f"{where}: expected a world or a team, got both, {table['world']!r} and {table['team']!r}")
    runs = None if source is None else Path(source)
    path = None if folder is None else Path(folder)
    if path is None and isinstance(recipe, Mapping):
        raise BadRecipe("settings in a dict have no name for a folder: expected folder=..., got none")
    if policy == "net":
        if "team" in table:
            raise BadRecipe(f"{where}: a live team is played by language models: expected --policy lm, got net")
        if model is not None:
            raise BadRecipe("--model goes with --policy lm")
        return Run(read_recipe(table, where), path or Path("out") / stem, cores, keep, runs)
    if policy != "lm":
        raise BadRecipe(f"--policy must be net or lm, got {policy!r}")
    return _open_lm_run(table, where, path or Path("out") / f"{stem}-lm", model, keep, runs)


def _open_lm_run(
    table: dict[str, Any], where: str, folder: Path, model: str | None, keep: bool, source: Path | None
) -> Any:
    try:
        from podium.learn.lm import live_run, run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("podium"):
            raise
        raise BadRecipe(
            f"language models need the package {error.name}, which is not installed: pip install 'podium[lm]'"
        ) from None
    if "team" in table:
        return live_run.LiveRun(live_run.read_team_recipe(table, where, model), folder, keep, source)
    return run.LmRun(run.read_world_recipe(table, where, model), folder, keep, source)


def _table(recipe: str) -> dict[str, Any]:
    path = Path(recipe)
    if not path.suffix and (RECIPES / f"{recipe}.toml").exists():
        path = RECIPES / f"{recipe}.toml"
    try:
        return table_of(path.read_text(), recipe)
    except (OSError, UnicodeDecodeError) as error:
        known = alternatives(recipe, sorted(p.stem for p in RECIPES.glob("*.toml")))
        raise BadRecipe(
            f"cannot read the recipe {recipe!r} ({error}); expected a TOML file, or a recipe's name; {known}"
        ) from None
