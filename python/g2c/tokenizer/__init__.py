"""Byte-level BPE for stories."""

from g2c.tokenizer.story_tokenizer import END_OF_TEXT, StoryTokenizer

__all__ = ["END_OF_TEXT", "StoryTokenizer"]
