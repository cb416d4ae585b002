"""Filling story templates.

A plot is a text file: slots, a line ``---``, then the story, a paragraph to a block of lines.

    hero = child             a person: child, family, elder, grownup[:JOBS], or animal:CATEGORY
    toy = colors+toys        a thing: word lists, one word of each
    ---
    {hero} [had|owned] a* {toy}. <happy>

``[x|y]`` is a choice, which may be nested; ``{hero}`` a slot and ``{hero.he}`` a form of it;
``{~fruits}`` a fresh word and ``{~fruits.s}`` its plural; ``<happy>`` a line of that rule in
``rules.txt`` about the hero and ``<happy:friend>`` one about the friend, whom the rule calls
``who``; ``a*`` becomes "a" or "an". Sentences get their capital letters by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random

from g2c.artifacts.embedded.vocabulary import article, plural, word_lists

_REFERENCE = re.compile(r"\{(~?)([a-z+]+)(?:\.([A-Za-z]+))?\}")
_RULE = re.compile(r"<([a-z]+)(?::([a-z]+))?>")
_PLAIN = re.compile(r"[^\[\]|{}<>]+")
_PATTERNS = (_PLAIN, _REFERENCE, _RULE)
_SPEECH = "said|replied|answered|asked|whispered|murmured|mumbled|shouted|called|cried|yelled"
_FAMILY = {"family": ("mom", "grandma", "dad", "grandpa"), "elder": ("grandma", "grandpa")}
# What stays the same through a story however often a template mentions it.
_STEADY = frozenset({"water", "treats", "carriers"})


@dataclass(frozen=True)
class Plot:
    """One story skeleton: slots to draw, in order, and the template of each paragraph."""

    name: str
    slots: tuple[tuple[str, str], ...]
    paragraphs: tuple[str, ...]


@cache
def plots() -> tuple[Plot, ...]:
    """All plots of the ``plots`` folder, by name."""
    folder = files(__package__).joinpath("plots")
    found = []
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.name.endswith(".txt"):
            found += [
                _plot(f"{entry.name[:-4]}-{number}", text)
                for number, text in enumerate(entry.read_text(encoding="utf-8").split("\n===\n"))
            ]
    return tuple(found)


@cache
def rules() -> dict[str, tuple[str, ...]]:
    """The lines of ``rules.txt`` by rule."""
    found: dict[str, list[str]] = {}
    text = files(__package__).joinpath("rules.txt").read_text(encoding="utf-8")
    current: list[str] = []
    for line in text.splitlines():
        if line.startswith("@"):
            current = found.setdefault(line[1:].strip(), [])
        elif line.strip() and not line.startswith("#"):
            current.append(line.strip())
    return {name: tuple(lines) for name, lines in found.items()}


class Story:
    """One telling of a plot. Equal random states give equal stories on every Python version."""

    def __init__(self, plot: Plot, random: Random) -> None:
        self._random = random
        self._used: set[str] = set()
        self._used_rules: set[str] = set()
        self._forms: dict[str, dict[str, str]] = {}
        for slot, kind in plot.slots:
            self._forms[slot] = self._draw(kind)
        self.text = "\n".join(finish(self._expand(p, "hero")) for p in plot.paragraphs)

    def _pick(self, options: Sequence[str]) -> str:
        # random() is the one method whose sequence Python promises to keep.
        return options[int(self._random.random() * len(options))]

    def _fresh(self, category: str) -> str:
        words = word_lists()[category]
        for _ in range(20):
            word = self._pick(words)
            if word not in self._used:
                break
        self._used.add(word)
        return word

    def _draw(self, kind: str) -> dict[str, str]:
        if kind == "child":
            sex = self._pick(("girl", "boy"))
            return _person(self._fresh(sex + "s"), sex, sex == "girl")
        if kind.startswith("grownup"):
            jobs = kind.partition(":")[2] or "jobs"
            female = self._pick("fm") == "f"
            title = "Mrs." if female else "Mr."
            job = self._fresh(jobs)
            while job.endswith("man") and female:
                job = self._fresh(jobs)
            return _person(f"{title} {self._fresh('surnames')}", job, female)
        if kind in _FAMILY:
            word = self._pick(_FAMILY[kind])
            return _person(word.capitalize(), word, word in ("mom", "grandma"))
        if kind.startswith("animal:"):
            return _person(self._fresh("pets"), self._fresh(kind.split(":")[1]), self._pick("fm") == "f")
        words = [self._fresh(category) for category in kind.split("+")]
        phrase = " ".join(words)
        return {"": phrase, "n": words[-1], "s": plural(phrase), "ns": plural(words[-1])}

    def _expand(self, template: str, who: str) -> str:
        done = []
        for node in _parse(template):
            if isinstance(node, str):
                done.append(node)
            elif isinstance(node, tuple):
                done.append(self._expand(self._pick(node), who))
            elif node.re is _REFERENCE:
                done.append(self._refer(node, who))
            else:
                done.append(self._expand(self._rule(node[1]), node[2] or "hero"))
        return "".join(done)

    def _refer(self, match: re.Match[str], who: str) -> str:
        fresh, name, form = match[1], match[2], match[3] or ""
        if name in _STEADY and name not in self._forms:
            self._forms[name] = self._draw(name)
        if fresh and name not in _STEADY:
            return self._draw(name)[form]
        return self._forms[who if name == "who" else name][form]

    def _rule(self, name: str) -> str:
        lines = rules()[name]
        for _ in range(10):
            line = self._pick(lines)
            if line not in self._used_rules:
                break
        self._used_rules.add(line)
        return line


def finish(text: str) -> str:
    """Set articles, spaces and the capital letters of sentences."""
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"\s+([.,!?])", r"\1", text)
    text = re.sub(r"([?!]),\"", r'\1"', text)
    text = re.sub(r"(?<=[a-z])\" (?=[A-Za-z])", '," ', text)
    text = re.sub(r"\.\" (?=\w+(?: \w+)? (?:" + _SPEECH + r")\b)", '," ', text)
    text = re.sub(r"\b[Aa]\* (\w+)", lambda m: f"{article(m[1])} {m[1]}", text)
    text = re.sub(r"(^\"?|(?<= )\")([a-z])", lambda m: m[1] + m[2].upper(), text)
    # After a closing quotation mark only a full stop surely ends the sentence.
    return re.sub(r"((?:[.!?]|\.\") )([a-z])", lambda m: m[1] + m[2].upper(), text)


@cache
def _parse(template: str) -> tuple[str | tuple[str, ...] | re.Match[str], ...]:
    """Plain text, choices (a tuple of options), references and rules, in order."""
    nodes: list[str | tuple[str, ...] | re.Match[str]] = []
    position = 0
    while position < len(template):
        if template[position] == "[":
            options, position = _options(template, position)
            nodes.append(options)
            continue
        match = next((m for p in _PATTERNS if (m := p.match(template, position))), None)
        if match is None:
            raise ValueError(f"template: cannot read {template[position : position + 40]!r}")
        nodes.append(match[0] if match.re is _PLAIN else match)
        position = match.end()
    return tuple(nodes)


def _options(template: str, start: int) -> tuple[tuple[str, ...], int]:
    depth = 0
    begin = start + 1
    options = []
    for position in range(start, len(template)):
        character = template[position]
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
            if depth == 0:
                options.append(template[begin:position])
                return tuple(options), position + 1
        elif character == "|" and depth == 1:
            options.append(template[begin:position])
            begin = position + 1
    raise ValueError(f"template: no ] for the [ in {template[start : start + 40]!r}")


def _person(name: str, kind: str, female: bool) -> dict[str, str]:
    he, him, his = ("she", "her", "her") if female else ("he", "him", "his")
    return {
        "": name,
        "kind": kind,
        "kinds": plural(kind),
        "he": he,
        "He": he.capitalize(),
        "him": him,
        "his": his,
        "His": his.capitalize(),
        "himself": him + "self",
        "sibling": "sister" if female else "brother",
    }


def _plot(name: str, text: str) -> Plot:
    head, body = text.split("\n---\n", 1)
    slots = []
    for line in head.strip().splitlines():
        slot, kind = line.split(" = ")
        slots.append((slot.strip(), kind.strip()))
    # A line that begins with speech begins a paragraph, as a blank line does.
    blocks = re.split(r"\n\n|\n(?=\")", body.strip())
    paragraphs = tuple(block.replace("\n", " ") for block in blocks)
    return Plot(name, tuple(slots), paragraphs)
