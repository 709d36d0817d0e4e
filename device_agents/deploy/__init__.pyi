from device_agents.deploy.bundle import Bundle, build_bundle
from device_agents.deploy.install import (
    Installation,
    clear_cache,
    installed_payloads,
    remove_payloads,
    start_agent,
)
from device_agents.deploy.readiness import DeviceReport, Problem, examine, install_environment, problems

__all__ = [
    "Bundle", "DeviceReport", "Installation", "Problem", "build_bundle", "clear_cache", "examine",
    "install_environment", "installed_payloads", "problems", "remove_payloads", "start_agent",
]  # fmt: skip
