"""The reference fleet: phone profiles from published facts, for when nobody has measured yet."""

from power.reference.facts import reference_facts
from power.reference.fleet import reference_fleet

__all__ = ["reference_facts", "reference_fleet"]
