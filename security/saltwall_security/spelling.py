"""Every way in which software writes words down."""

import base64
import html
import json
from urllib.parse import quote, quote_plus


def spell(text: str) -> frozenset[bytes]:
    """A text as it is, and in hex, base64, percent signs, JSON's and HTML's escapes and UTF-16."""
    raw, quoted = text.encode(), json.dumps(text)[1:-1]
    found = {raw, text.encode("utf-16-le"), raw.hex().encode(), raw.hex().upper().encode()}
    found.add("".join(f"%{byte:02X}" for byte in raw).encode())
    found.add("".join(f"\\u{ord(letter):04x}" for letter in text).encode())
    escaped = quote(text), quote(text, ""), quote_plus(text), html.escape(text), quoted
    found |= {each.encode() for each in (*escaped, quoted.replace("/", "\\/"))}
    for shift in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            # Within a longer text the ends depend on what stands beside it.
            encoded = encode(bytes(shift) + raw)[: (shift + len(raw)) // 3 * 4]
            found.add(encoded[4 if shift else 0 :])
    return frozenset(found)
