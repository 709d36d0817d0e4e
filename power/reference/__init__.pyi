from power.reference.facts import (
    Anchor,
    FactSource,
    Family,
    InterferenceFacts,
    PhoneFacts,
    PowerFacts,
    Radio,
    RadioLink,
    ReferenceFacts,
    Speed,
    TaskFacts,
    reference_facts,
)
from power.reference.fleet import reference_fleet

__all__ = [
    "Anchor", "FactSource", "Family", "InterferenceFacts", "PhoneFacts", "PowerFacts", "Radio", "RadioLink",
    "ReferenceFacts", "Speed", "TaskFacts", "reference_facts", "reference_fleet",
]  # fmt: skip
