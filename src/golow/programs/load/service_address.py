"""The address of a service that is loaded from outside."""

from __future__ import annotations

from urllib.parse import urlsplit

from golow.records.errors import GolowError


def require_url(url: str) -> None:
    """Raise `GolowError` for what is not the address of a service."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # raises for what is not a number
    except ValueError:
        sound = False
    if not sound:
        raise GolowError(
            f"{url!r} is not the address of a service", "for example --url http://localhost:8000."
        )
