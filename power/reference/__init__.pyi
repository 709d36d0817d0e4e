from power.reference.facts import (
    Anchor,
    FactSource,
    Family,
    InterferenceFacts,
    ListedPhones,
    PhoneFacts,
    PowerFacts,
    Radio,
    RadioLink,
    ReferenceFacts,
    Speed,
    TaskFacts,
    listed_phones,
    reference_facts,
)
from power.reference.fleet import listed_fleet, reference_fleet

__all__ = [
    "Anchor", "FactSource", "Family", "InterferenceFacts", "ListedPhones", "PhoneFacts", "PowerFacts",
    "Radio", "RadioLink", "ReferenceFacts", "Speed", "TaskFacts", "listed_fleet", "listed_phones",
    "reference_facts", "reference_fleet",
]  # fmt: skip
