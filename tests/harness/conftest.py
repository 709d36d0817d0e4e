"""A real OpenSSH server for the tests of the bench."""

from tests.device_agents.conftest import sshd

__all__ = ["sshd"]
