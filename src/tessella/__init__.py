"""Tessella: how vision transformers learn which patches of an image belong together."""
