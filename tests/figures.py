"""Equality of figures that were computed on different machines."""

import json
from typing import Any

import pytest


def assert_same_figures(stored: str, computed: str) -> None:
    """Compares two JSON texts; numbers may differ in their last digits, as sums of other processors do."""
    expected = {
        place: pytest.approx(value, rel=1e-6, abs=0) if isinstance(value, float) else value
        for place, value in _flat(json.loads(computed)).items()
    }
    assert _flat(json.loads(stored)) == expected


def _flat(value: Any, place: str = "") -> dict[str, Any]:
    if not isinstance(value, (dict, list)):
        return {place: value}
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    return {key: leaf for name, one in inside for key, leaf in _flat(one, f"{place}/{name}").items()}
