from traces.model import interval_channels, point_channels
from traces.quality.checks import TraceFinding, TraceSeverity, require_replayable, validate
from traces.quality.repairs import repair
from traces.quality.sets import FindingCount, FindingCounts, SetRepair, repair_set, validate_set
from traces.storage.trace_set import RepairRecord

__all__ = [
    "FindingCount", "FindingCounts", "RepairRecord", "SetRepair", "TraceFinding", "TraceSeverity",
    "interval_channels", "point_channels", "repair", "repair_set", "require_replayable", "validate",
    "validate_set",
]  # fmt: skip
