"""What pages are wrapped in: a head, their styles and scripts, and a policy that lets them ask nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.resources

Html = str


def escape(text: object) -> Html:
    """Text as HTML."""
    return html.escape(str(text), quote=True)


def asset(name: str) -> str:
    """A style or script of the pages, as text."""
    return importlib.resources.files("tessella.report").joinpath("assets", name).read_text(encoding="utf-8")


def closed_document(title: str, body: Html, style: str, script: str, more: str = "") -> Html:
    """A document whose policy lets its own style and script run, and pictures that it carries be drawn; nothing else.

    `more` is added to the policy, such as `connect-src 'self'`. The script runs when all of the body is there.
    """
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(policy(style, script, more))}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
{body}
<script>{script}</script>
</body>
</html>
"""


def policy(style: str, script: str, more: str = "") -> str:
    """The policy of a document with this style and this script, which names both by their hashes."""

    def hashed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    allowed = ["img-src data: blob:"] if "img-src" not in more else []
    rules = [
        "default-src 'none'",
        f"script-src {hashed(script)}",
        f"style-src {hashed(style)}",
        *allowed,
        "base-uri 'none'",
        "form-action 'none'",
        *([more] if more else []),
    ]
    return "; ".join(rules)
