"""What is wrong with traces: found, counted and, when asked, repaired."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "traces.quality.checks": (
            "TraceFinding",
            "TraceSeverity",
            "interval_channels",
            "point_channels",
            "require_replayable",
            "validate",
        ),
        "traces.quality.repairs": ("repair",),
        "traces.quality.sets": ("FindingCount", "FindingCounts", "SetRepair", "repair_set", "validate_set"),
        "traces.storage.manifest": ("RepairRecord",),
    },
)
