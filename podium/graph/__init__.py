"""Pure views of a trace: units, ancestors, spans, critical path, what-if schedules, taint."""

from podium.graph.ancestry import ancestors, descendants
from podium.graph.path import CriticalPath, SerialTime, critical_path, inferred_work, serial_time, work
from podium.graph.people import persons, team_work, waiting
from podium.graph.schedule import Schedule, with_workers
from podium.graph.spans import Concurrency, Lives, concurrency, lives, mean_busy, peak
from podium.graph.steps import critical_steps, lead
from podium.graph.taint import carriers, taint, through
from podium.graph.units import UNITS, call_of

__all__ = [
    "UNITS",
    "Concurrency",
    "CriticalPath",
    "Lives",
    "Schedule",
    "SerialTime",
    "ancestors",
    "call_of",
    "carriers",
    "concurrency",
    "critical_path",
    "critical_steps",
    "descendants",
    "inferred_work",
    "lead",
    "lives",
    "mean_busy",
    "peak",
    "persons",
    "serial_time",
    "taint",
    "team_work",
    "through",
    "waiting",
    "with_workers",
    "work",
]
