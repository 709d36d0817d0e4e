"""The host's side of a conversation with an agent: clock pings, jobs, what they leave behind."""
