"""Which certificates are believed: the system's, or `SSL_CERT_FILE`."""

import ssl
from functools import cache


@cache
def system_trust() -> ssl.SSLContext:
    """What OpenSSL trusts here; httpx would take a list of its own."""
    return ssl.create_default_context()
