"""The models that the papers analyse."""
