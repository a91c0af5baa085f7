"""Our credit inside other people's trainers: one file a trainer, imported only by who uses it.

`rollout_files` reads what they write; it is imported here so that its importers are known.
"""

from podium.exchange.trainers import rollout_files as rollout_files

__all__ = ["rollout_files"]
