"""The reference fleet: phone profiles from published facts, for when nobody has measured yet."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "power.reference.facts": (
            "Anchor",
            "FactSource",
            "Family",
            "PhoneFacts",
            "PowerFacts",
            "Radio",
            "RadioLink",
            "ReferenceFacts",
            "Speed",
            "TaskFacts",
            "reference_facts",
        ),
        "power.reference.fleet": ("reference_fleet",),
    },
)
