"""Importing this module registers the studies of `experiments/questions`, where that folder is there."""

from podium.study.checkout import FOLDER, import_experiment

__all__: list[str] = []

if (FOLDER / "questions" / "__init__.py").is_file():
    import_experiment("questions")
