"""The user's tool: inventory, plans, runner, clock alignment, profiles, reports, command line."""
