"""The agent's end of the link to the host."""
