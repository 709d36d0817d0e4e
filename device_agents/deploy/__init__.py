"""Puts the agent on a device: what the device needs, the payload as one file, upload and start."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "device_agents.deploy.bundle": ("Bundle", "build_bundle"),
        "device_agents.deploy.install": (
            "Installation",
            "clear_cache",
            "installed_payloads",
            "remove_payloads",
            "start_agent",
        ),
        "device_agents.deploy.readiness": (
            "DeviceReport",
            "Problem",
            "examine",
            "install_environment",
            "problems",
        ),
    },
)
