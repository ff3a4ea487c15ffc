"""Positional attention into other libraries' vision transformers. None of those libraries is imported here."""
