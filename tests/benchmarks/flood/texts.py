"""Prompts of real words: one long prefix that is always the same, and ones that nobody has sent."""

import itertools
import random

_VOCABULARY = """
salt harbour evaporation merchant century province warehouse caravan mineral taxation river
kingdom brine furnace timber labourer engineer inspector ledger customs voyage desert quarry
monastery parliament rebellion famine preservation herring butcher cheese leather pottery
silver currency wages contract dispute magistrate charter privilege monopoly smuggling frontier
garrison fortress siege treaty marriage inheritance plantation colony independence railway
telegraph steamship refinery chemistry chlorine sodium crystal solution temperature pressure
reservoir pipeline geology sediment plateau glacier estuary marsh lagoon monsoon drought
migration settlement village market festival ceremony proverb superstition medicine remedy
physician surgeon hospital laboratory experiment hypothesis measurement instrument observation
catalogue library manuscript translation printer newspaper editor correspondent illustration
the of and to in that was for with from which were their between before after during against
slowly quickly often rarely never always usually perhaps certainly nearly almost
gabelle saltern halite packhorse wherries brinepan sleech sulphur exciseman turnpike
lixiviation saltcellar tollkeeper drayman herringbone cooperage saltpetre tannery lighterman
hogshead firkin bushels quayside wharfinger graduation boilerman muleteers stevedore
carried gathered traded buried measured refused promised counted opened closed
"""
WORDS = tuple(_VOCABULARY.split())


def words(count: int, generator: random.Random) -> str:
    """That many words."""
    return " ".join(generator.choices(WORDS, k=count))


class Unique:
    """Prompts that differ from their first word on, so that no block of one is another's."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._numbers = itertools.count(1)

    def __call__(self, count: int) -> str:
        """A new prompt of that many words."""
        number = next(self._numbers)
        text = words(count, random.Random(f"{self._seed} {number}"))
        # Before the numbers, which begin alike: a block may end after the first token.
        return f"{WORDS[number % len(WORDS)]} {self._seed}-{number}: {text}"
