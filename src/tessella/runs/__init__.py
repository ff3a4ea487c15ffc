"""Run folders, and what a run ran on."""
