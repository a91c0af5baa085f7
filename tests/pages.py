"""What a page that is one file carries."""

from __future__ import annotations

import base64
import gzip
import re
from typing import Any

import msgspec

__all__ = ["carried", "report_of"]


def carried(page: str) -> dict[str, bytes]:
    """The answers in a page, by what the page asks."""
    blocks = re.findall(r'<script type="application/gzip" data-key="([^"]*)">([^<]*)</script>', page)
    return {key.replace("&amp;", "&"): gzip.decompress(base64.b64decode(data)) for key, data in blocks}


def report_of(page: str) -> dict[str, Any]:
    """Title, facts, table and lessons of a report."""
    report: dict[str, Any] = msgspec.json.decode(carried(page)["index"])["report"]
    return report
