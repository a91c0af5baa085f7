"""What needs worlds and methods at once: how true credit is, what spreads it thin, and when an effect cannot be
known."""

__all__: list[str] = []
