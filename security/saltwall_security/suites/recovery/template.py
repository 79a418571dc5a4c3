"""What is stolen: the words that somebody has put into a form whose text is known."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

DICTIONARY: Final = (
    "amber",
    "birch",
    "cedar",
    "delta",
    "ember",
    "frost",
    "grove",
    "haven",
    "ivory",
    "jasper",
    "kelp",
    "lemon",
    "maple",
    "nickel",
    "ocean",
    "pearl",
    "quartz",
    "river",
    "stone",
    "tiger",
    "umber",
    "velvet",
    "willow",
    "xenon",
    "yellow",
    "zebra",
)
SECRET_WORDS = 3


@dataclass(frozen=True)
class Form:
    """A prompt template: an opening, and after each secret word a text that is the same for all.

    Args:
        opening: in it a session differs from others, in ways that are known.
        between: a text for each secret word; it is longer than a block of the cache, so that a
            right guess, followed by it, completes the block that the word is in.
    """

    opening: str
    between: Sequence[str]

    def text(self, words: Sequence[str]) -> str:
        """The prompt as far as these words fill it in."""
        filled = zip(words, self.between, strict=False)
        return " ".join([self.opening, *(part for pair in filled for part in pair)])
