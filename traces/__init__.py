"""Interaction traces: what the user of a phone is doing, and what that allows."""
