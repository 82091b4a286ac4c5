"""Tests, and where the project is that they look at."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
