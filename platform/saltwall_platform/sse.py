"""Server-sent events as bytes: cut into whole events, whatever chunks they arrive in."""

import re

MAX_EVENT_BYTES = 16 * 2**20
# An event ends at an empty line; a line ends with CRLF, LF or CR (WHATWG HTML, 9.2.6).
_END = re.compile(rb"(?>\r\n|\n|\r){2}")
_LINE = re.compile(rb"\r\n|\n|\r")
_LONGEST_END = 4


class EventTooLarge(Exception):
    """The engine sent an event that does not end."""


class EventSplitter:
    """Turns chunks into whole events, of which the bytes are kept as they came."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that this chunk completes.

        Raises:
            EventTooLarge: one goes over `MAX_EVENT_BYTES`.
        """
        searched = max(0, len(self._pending) - _LONGEST_END + 1)
        self._pending += chunk
        events = []
        start = 0
        while match := _END.search(self._pending, max(start, searched)):
            events.append(bytes(self._pending[start : match.end()]))
            start = match.end()
        del self._pending[:start]
        if len(self._pending) > MAX_EVENT_BYTES:
            raise EventTooLarge
        return events

    def rest(self) -> bytes:
        """What follows the last whole event."""
        return bytes(self._pending)


def data_span(event: bytes) -> tuple[int, int] | None:
    """Where the data of an event is; None unless it has exactly one `data` line."""
    found = None
    start = 0
    while start < len(event):
        end = _LINE.search(event, start)
        stop = end.start() if end else len(event)
        if event.startswith(b"data:", start):
            if found:
                return None
            begin = start + (6 if event.startswith(b"data: ", start) else 5)
            found = (begin, stop)
        start = end.end() if end else len(event)
    return found
