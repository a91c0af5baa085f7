"""Podium: train and understand teams of language-model agents through the record of how they worked together."""

from podium.trace import BadTrace, Finding, Recorder, Trace, Unreadable, concat, load, save

__all__ = ["BadTrace", "Finding", "Recorder", "Trace", "Unreadable", "concat", "load", "save"]
