"""Word lists and the few rules of English that filling a template needs."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_IRREGULAR = {
    "mouse": "mice",
    "dormouse": "dormice",
    "woodlouse": "woodlice",
    "goose": "geese",
    "foot": "feet",
    "knife": "knives",
    "leaf": "leaves",
    "loaf": "loaves",
    "scarf": "scarves",
    "shelf": "shelves",
    "bookshelf": "bookshelves",
    "calf": "calves",
    "wolf": "wolves",
    "elf": "elves",
    "ox": "oxen",
    "child": "children",
    "octopus": "octopuses",
    "cactus": "cactuses",
    "fisherman": "fishermen",
    "watchman": "watchmen",
    "milkman": "milkmen",
    "ferryman": "ferrymen",
}
_SAME = {"sheep", "deer", "fish", "squid", "salmon", "trout", "cod", "moose", "goldfish", "shrimp"}
_SAME |= {"starfish", "jellyfish", "swordfish", "carp", "tuna", "mackerel", "herring"}
_PLURAL_O = {"potato", "tomato", "buffalo", "mango", "mosquito", "sweet potato", "hero", "domino"}
_SOUNDS_LIKE_CONSONANT = re.compile(r"(uni|use|eu|one\b|ukulele)", re.IGNORECASE)


@cache
def word_lists() -> dict[str, tuple[str, ...]]:
    """All categories of ``words.txt``; entries without repeats, in the order of the file."""
    lists: dict[str, dict[str, None]] = {}
    text = files(__package__).joinpath("words.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            category, entries = line.split(": ", 1)
            words = lists.setdefault(category, {})
            words.update((entry.replace("_", " "), None) for entry in entries.split())
    return {category: tuple(words) for category, words in lists.items()}


def plural(noun: str) -> str:
    """Plural of a noun or of a phrase whose last word is one."""
    head, space, last = noun.rpartition(" ")
    if last in _SAME:
        return noun
    if last in _IRREGULAR:
        return head + space + _IRREGULAR[last]
    if last in _PLURAL_O or re.search(r"(s|x|z|ch|sh)$", last):
        return noun + "es"
    if re.search(r"[^aeiou]y$", last):
        return noun[:-1] + "ies"
    return noun + "s"


def article(following: str) -> str:
    """``a`` or ``an``, whichever stands before ``following``."""
    vowel = following[:1].lower() in tuple("aeiou") and not _SOUNDS_LIKE_CONSONANT.match(following)
    return "an" if vowel or following.lower().startswith(("hour", "honest")) else "a"
