"""What happened: columns, the rules they obey, the file formats, the recorder."""

from podium.trace.columns import Names, Text, Trace, concat
from podium.trace.files import load, save
from podium.trace.findings import BadTrace, Finding, Unreadable
from podium.trace.recorder import Recorder
from podium.trace.rules import RULES, check

__all__ = [
    "RULES",
    "BadTrace",
    "Finding",
    "Names",
    "Recorder",
    "Text",
    "Trace",
    "Unreadable",
    "check",
    "concat",
    "load",
    "save",
]
