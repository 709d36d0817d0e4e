"""What the agent records during a job: journal, markers, telemetry, power sensors."""
